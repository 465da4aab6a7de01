/* Kinds of sublayers.
 *
 * A block has two slots, the mixer (CALM_SUBLAYER_ATTENTION) and the feed-forward part (CALM_SUBLAYER_MLP).  Each holds
 * a sublayer of some kind, or nothing.  A kind is one file kind_<name>.c, which ends with its descriptor, and its lines
 * in kinds.def.  Layout, loading, capture, memory plan, assembly, exporters and checks read the descriptor.
 *
 * `config` is always that of the block in question (calm_config_at): blocks of a model may differ in kinds and
 * widths. */
#pragma once

#include "ptq/arch/arch.h"
#include "ptq/arch/gguf_order.h"
#include "ptq/arch/layout.h"

/* The weights that a job's input scale can be folded into. */
typedef enum calm_fold {
    CALM_FOLD_NONE,
    CALM_FOLD_NORM,    /* the slot's IN norm, where nothing else reads its output            */
    CALM_FOLD_ROWS,    /* rows of a linear of the same sublayer, which calm_kind.feed names  */
} calm_fold;

struct calm_kind_job {
    calm_job_kind job;
    bool outer;              /* its input is the sublayer's input, as the first job's always is                    */
    calm_fold fold;
    calm_place_role place;   /* its class in mixes of quantization types (ptq/quant/mix.h)                         */
    bool turns;              /* RoPE rotates its outputs: some engines permute rows of its weights for that        */
    bool splits;             /* in a split layout the linears of the role `apart` are a separate job               */
    calm_role apart;
    const char *fused;       /* "qkv_proj": the matrix, of one scheme, into which engines fuse its linears; or NULL */
    const char *fused_last;  /* `fused` holds only where its last linear is one of these, joined by '|'; or NULL   */
    const char *stays_float; /* reason why it stays float unless the user names it; NULL: it is quantized          */
};

/* llama.cpp's name of a role's tensor; `many` and `shared`: the names for experts and for the shared expert; NULL: it
 * has none.  A role that is listed twice is two tensors in a GGUF file. */
typedef struct calm_kind_word {
    calm_role role;
    calm_gguf_form form;     /* which rows the tensor holds, and in which order */
    bool bias;               /* llama.cpp reads its bias in every architecture  */
    const char *word, *many, *shared;
} calm_kind_word;

typedef enum calm_plain_form {
    CALM_PLAIN_FAMILY_NORM,  /* a norm of the family's kind: MODULE.weight, and MODULE.bias where it has one        */
    CALM_PLAIN_RMS_NORM,     /* MODULE.weight of an RMSNorm, times w even where the family's norms multiply by 1 + w */
    CALM_PLAIN_TENSOR,       /* a tensor by its full name within the block: "self_attn.sinks", "conv1d.weight"      */
} calm_plain_form;

/* A float tensor of the sublayer that is no linear: block->plain[plain]. */
typedef struct calm_kind_plain {
    calm_plain plain;
    calm_plain_form form;
    double eps;              /* of the norm; 0: the family's     */
    const char *word;        /* llama.cpp's name; of a CALM_PLAIN_TENSOR with ending: "attn_sinks.weight"; or NULL */
    calm_gguf_form order;    /* order of its elements or rows in a GGUF file */
    bool minus_exp;          /* a GGUF file stores -exp of its values  */
    bool taps;               /* shape [channels, 1, width], in a GGUF file a matrix */
} calm_kind_plain;

#define CALM_PLAIN_DIMS 4

/* Modules that engines merge into one, which needs one scheme.  `calm check` finds them by the last words of their
 * names. */
#define CALM_FUSED_PARTS 3
typedef struct calm_fusion {
    const char *parts[CALM_FUSED_PARTS];    /* "q_proj", "k_proj", "v_proj"; NULL after the last         */
    const char *fused;                      /* name of the merged module; NULL: configurations do not name it */
} calm_fusion;

/* The rows of a linear that compute the channels of a later job's input, head by head: row first + h stride + i of the
 * linear computes channel (h readers + r) width + i of the input, for each reader r. */
typedef struct calm_feed {
    calm_role role;
    size_t first, stride;    /* first row, and rows from one head to the next                        */
    size_t heads, width;     /* number of heads, channels of a head                                  */
    size_t readers;          /* heads of the input that read one head of rows: they share a scale    */
    bool rotates;            /* the channels of a head are only mixed linearly: a rotation may be folded in */
    bool groups;             /* transforms are told which channels share a row, even where none do   */
} calm_feed;

/* What the passes of a kind work on: block.h, rope.h, observer.h and block_back.h define them. */
typedef struct calm_block calm_block;
typedef struct calm_span calm_span;
typedef struct calm_rope calm_rope;
typedef struct calm_observer calm_observer;
typedef struct calm_block_grads calm_block_grads;

/* Inputs of a sublayer's forward and backward pass over one window. */
typedef struct calm_kind_pass {
    const calm_block *block;
    const calm_rope *rope;
    const float *x, *h;      /* [T, D] the residual, and the input of f */
    const calm_span *span;
} calm_kind_pass;

/* Forward and backward pass with gradients (block_back.h).  Functions ..._bytes return bytes of ctx->scratch for T
 * tokens. */
typedef struct calm_kind_back {
    size_t tape_bytes;       /* size of the struct that `forward` fills in */

    /* Computes y [T, D] = f(h), the same as `run`.  The tape's arrays stay in ctx->scratch. */
    calm_status (*forward)(calm_ctx *ctx, const calm_kind_pass *pass, float *y, void *tape);

    /* From dy [T, D]: adds to the gradients that are wanted, writes grads->lengths and dh [T, D] (NULL: not wanted);
     * adds to dx [T, D], which may be dy, the gradient that reaches x on other ways than through h. */
    calm_status (*back)(calm_ctx *ctx, const calm_kind_pass *pass, const void *tape, const float *dy,
                        const calm_block_grads *grads, float *dh, float *dx);

    /* Bytes that `forward` keeps for `back`; and the peak of either call on top of that, workers included. */
    size_t (*kept_bytes)(const calm_config *config, size_t n_tokens);
    size_t (*forward_bytes)(const calm_config *config, size_t n_tokens, size_t n_threads);
    size_t (*back_bytes)(const calm_config *config, size_t n_tokens, size_t n_threads);

    /* The two peaks of a mixture, where they depend on `expert_bytes`, the size of a loaded expert. */
    size_t (*routed_forward_bytes)(const calm_config *config, size_t n_tokens, size_t expert_bytes, size_t n_threads);
    size_t (*routed_back_bytes)(const calm_config *config, size_t n_tokens, size_t expert_bytes, size_t n_threads);
} calm_kind_back;

struct calm_kind {
    const char *name;                 /* as kinds.def has it */
    calm_sublayer slot;
    const calm_kind_job *jobs;        /* [n_jobs] in the order in which they run: the first reads the sublayer's      */
    size_t n_jobs;                    /* input; the last has one linear, whose output is the sublayer's output        */
    const calm_kind_word *words;      /* [n_words] llama.cpp's names of its roles */
    size_t n_words;
    const calm_fusion *fusions;       /* [n_fusions] */
    size_t n_fusions;
    const calm_kind_plain *plains;    /* [n_plains] */
    size_t n_plains;
    const calm_hook *hooks;           /* [n_hooks] in addition to the inputs of its jobs and the slot's output */
    size_t n_hooks;
    bool routed;                      /* a mixture: the shared expert and each expert have its jobs, and calm_moe_*
                                         (moe.h) run it over all windows instead of `run` */

    /* Does the block have a role that the family names?  NULL: yes. */
    bool (*has)(const calm_config *config, calm_role role);

    /* Gives the shape [out, in] of a role that the block has. */
    void (*shape)(const calm_config *config, calm_role role, long expert, size_t *out, size_t *in);

    /* Returns the keys of config.json that define this shape, for messages.  NULL: messages name none. */
    const char *(*keys)(calm_role role);

    /* Gives the shape [*n_dims] of a plain tensor that the family names; *n_dims 0: the block has no such tensor.
     * NULL: the kind has no plain tensors. */
    void (*plain_shape)(const calm_config *config, calm_plain plain, size_t shape[CALM_PLAIN_DIMS], int *n_dims);

    /* Returns the width of one of `hooks`; 0: the block does not have it.  NULL: the kind has no `hooks`. */
    size_t (*hook_width)(const calm_config *config, calm_hook hook, long expert);

    /* Gives the rows that compute the input of a CALM_FOLD_ROWS job; false: a function in between prevents folding.
     * NULL: the kind has no such job. */
    bool (*feed)(const calm_config *config, calm_job_kind job, long expert, calm_feed *out);

    /* Computes out [T, D] = f(h) from h [T, D], without norms and residual; `observer` sees its hook points except the
     * slot's output.  NULL for a mixture. */
    calm_status (*run)(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, const float *h,
                       const calm_span *span, float *out, const calm_observer *observer);

    /* Returns the number of floats of the recurrent state (calm_past_state).  NULL: a cache of keys and values. */
    size_t (*state)(const calm_config *config);

    /* Returns the peak bytes of ctx->scratch in `run`.  `prepared`: inputs of linears are scaled or quantized. */
    size_t (*scratch_bytes)(const calm_config *config, size_t n_tokens, bool prepared);

    /* Returns the operations per token outside of the linears, in a window of `window` tokens.  NULL: negligible. */
    double (*operations)(const calm_config *config, double window);

    /* Returns the bytes of ctx->scratch that each additional thread holds when several run one window.  NULL: 0. */
    size_t (*helper_bytes)(const calm_config *config, size_t n_tokens);

    const calm_kind_back *back;       /* NULL: methods that need gradients refuse the kind by its name */
};

/* Initialises a list of a calm_kind and its length from the array of the same name. */
#define CALM_KIND_LIST(list) .list = list, .n_##list = sizeof list / sizeof *list

/* Initialises the members that most kinds of mixers share from static objects of the same names. */
#define CALM_KIND_MIXER                                                                                                \
    .slot = CALM_SUBLAYER_ATTENTION, CALM_KIND_LIST(jobs), CALM_KIND_LIST(words), CALM_KIND_LIST(plains),              \
    .shape = shape, .plain_shape = plain_shape, .run = run, .scratch_bytes = scratch_bytes, .back = &back

/* The kind that families with latent attention put into calm_block_shape. */
extern const calm_kind calm_kind_mla;

/* Returns the *n known kinds in the order of kinds.def. */
const calm_kind *const *calm_kinds(size_t *n);

/* Returns the i-th fusion of all kinds; NULL: there are no more. */
const calm_fusion *calm_fusion_at(size_t i);

/* Do all sublayers have a backward pass, and all other parts of the blocks? */
bool calm_kinds_have_back(const calm_config *config);

/* Fails with CALM_EUNSUPPORTED, naming block and kind, where a sublayer has no backward pass, which `option` needs. */
calm_status calm_kinds_need_back(calm_ctx *ctx, const calm_config *config, const char *option);

/* Returns the kind of a sublayer by the model's config; NULL: the slot is empty. */
const calm_kind *calm_kind_at(const calm_config *config, size_t block, calm_sublayer slot);

/* Returns the kind of a sublayer by the block's own config; of a mixture the kind of its experts, the MLP. */
const calm_kind *calm_kind_dense(const calm_config *config, calm_sublayer slot);

/* Returns the kind of a sublayer by the block's own config; `sparse`: the block's MLP is a mixture. */
const calm_kind *calm_kind_of(const calm_config *config, calm_sublayer slot, bool sparse);

/* Returns the last slot of a block that holds a sublayer; its output completes the block's. */
calm_sublayer calm_block_last_slot(const calm_config *config);

/* Returns the descriptor of a job of the block. */
const calm_kind_job *calm_job_traits(const calm_config *config, calm_job_kind job);

/* Returns the job whose input is needed to score a candidate for `job`: the last job needs its own input, since only
 * its product is computed again; others need the first job's, since the whole sublayer runs with one new weight. */
calm_job_kind calm_job_scored_from(const calm_config *config, calm_job_kind job);

/* Returns a bit mask over calm_job_kind: the inputs that are needed to score candidates for `jobs` (a mask too) of a
 * sublayer, and with `unit` for the sublayer as a whole. */
unsigned calm_scored_inputs(const calm_config *config, calm_sublayer sublayer, unsigned jobs, bool unit);

/* Is the job one of those of the slot's sublayer? */
bool calm_slot_has_job(const calm_config *config, calm_sublayer slot, calm_job_kind job);

/* Does the block have a linear of the job? */
bool calm_job_exists(const calm_config *config, calm_job_kind job);

/* Returns the first job of a slot, which reads the sublayer's input. */
calm_job_kind calm_slot_first_job(const calm_config *config, calm_sublayer slot);

/* Returns the last job of a slot, whose product is the sublayer's output. */
calm_job_kind calm_slot_last_job(const calm_config *config, calm_sublayer slot);

/* Returns the name of the matrix into which engines fuse a job's linears; NULL: they do not fuse them. */
const char *calm_job_fused(const calm_names *names, calm_job_kind job);

/* Does any linear of a job have a bias? */
bool calm_job_biased(const calm_config *config, calm_job_kind job);

/* Is the job's product the sublayer's output?  *role (may be NULL) gets the role of its linear. */
bool calm_job_is_last(const calm_config *config, calm_job_kind job, calm_role *role);

/* Returns why the output of the norm before a sublayer, which is not empty, may not be changed: others read it too, or
 * there is no such norm; NULL: it may. */
const char *calm_kind_input_shared(const calm_config *config, size_t block, calm_sublayer slot);

/* Returns where the job's input scale can be folded, and for CALM_FOLD_ROWS the rows in *feed. */
calm_fold calm_job_fold(const calm_config *config, calm_job_kind job, long expert, calm_feed *feed);

/* Returns how many rows feed a job. */
size_t calm_feed_rows(const calm_feed *feed);

/* Returns the k-th feeding row, and the first input channel that it computes; the channels of further readers follow at
 * distances of `width`. */
size_t calm_feed_row(const calm_feed *feed, size_t k);
size_t calm_feed_channel(const calm_feed *feed, size_t k);

/* Returns the index k of the feeding row that computes a channel of the input. */
size_t calm_feed_number(const calm_feed *feed, size_t channel);

/* Returns the width of a hook point of a block or an expert. */
size_t calm_hook_width(const calm_config *config, calm_hook hook, long expert);

/* Does the sublayer of this slot have the hook point?  For an expert: do its own linears? */
bool calm_hook_in_slot(const calm_config *config, calm_sublayer slot, long expert, calm_hook hook);

/* Gives the shape [*n_dims] of a plain tensor; false: the block has none, or the family does not name it. */
bool calm_plain_shape(const calm_config *config, const calm_kind *kind, calm_plain plain,
                      size_t shape[CALM_PLAIN_DIMS], int *n_dims);

/* Is `module` a linear or norm of keys and values, in a block that reads those of another block?  Published files keep
 * such modules, and nothing reads them. */
bool calm_kv_is_unused_module(const calm_config *config, const char *module);
