/* Kinds of sublayers.
 *
 * A block has two slots, the mixer (CALM_SUBLAYER_ATTENTION) and the feed-forward part (CALM_SUBLAYER_MLP).  Each holds
 * a sublayer of some kind, or nothing.  A kind is one file kind_<name>.c, which ends with its descriptor, and its lines
 * in kinds.def.  Layout, loading, capture, memory plan, assembly, exporters and checks read the descriptor.
 *
 * `config` is always that of the block in question (calm_config_at): blocks of a model may differ in kinds and
 * widths. */
#pragma once

#include "ptq/model/arch.h"
#include "ptq/model/block_back.h"
#include "ptq/model/gguf_order.h"
#include "ptq/model/layout.h"

/* What takes the input scale of a job. */
typedef enum calm_fold {
    CALM_FOLD_NONE,
    CALM_FOLD_NORM,    /* the slot's IN norm, where nothing else reads what it gives         */
    CALM_FOLD_ROWS,    /* rows of a linear of the same sublayer: calm_kind.feed says which   */
} calm_fold;

struct calm_kind_job {
    calm_job_kind job;
    bool outer;              /* reads the sublayer's input, as the first job always does                           */
    calm_fold fold;
    calm_place_role place;   /* what mixes take it for (ptq/quant/mix.h)                                           */
    bool turns;              /* products turn by their position: some engines move rows of its weights for that    */
    bool splits;             /* a split layout gives the linears of the role `apart`                               */
    calm_role apart;         /* a separate job                                                                     */
    const char *fused;       /* "qkv_proj": engines hold its linears in one matrix, so in one scheme; NULL: apart  */
    const char *fused_last;  /* only where its last linear is one of these modules, joined by '|'; NULL: always     */
    const char *stays_float; /* why it is left float unless the user names it; NULL: it is quantized               */
};

/* llama.cpp's word for a role; `many` and `shared` of experts and of the shared one; NULL: it has none.  A role with
 * two words is two tensors there. */
typedef struct calm_kind_word {
    calm_role role;
    calm_gguf_form form;     /* which rows it holds, and in which order   */
    bool bias;               /* it knows a bias in every architecture     */
    const char *word, *many, *shared;
} calm_kind_word;

typedef enum calm_plain_form {
    CALM_PLAIN_FAMILY_NORM,  /* a norm like those around sublayers, MODULE.weight and of some families MODULE.bias  */
    CALM_PLAIN_RMS_NORM,     /* MODULE.weight, RMSNorm whose weight is the factor, whatever the family adds to it   */
    CALM_PLAIN_TENSOR,       /* a tensor by its full name within the block: "self_attn.sinks", "conv1d.weight"      */
} calm_plain_form;

/* A tensor of floats in addition to the linears: block->plain[plain]. */
typedef struct calm_kind_plain {
    calm_plain plain;
    calm_plain_form form;
    double eps;              /* of the norm; 0: the family's     */
    const char *word;        /* llama.cpp's, of a tensor with its ending: "attn_sinks.weight"; NULL: it has none  */
    calm_gguf_form order;    /* of its elements or rows there          */
    bool minus_exp;          /* it is stored there as -exp of its values */
    bool taps;               /* [channels, 1, width], a matrix there   */
} calm_kind_plain;

#define CALM_PLAIN_DIMS 4

/* Modules that engines hold as one, so in one scheme: `calm check` knows them by their last words. */
#define CALM_FUSED_PARTS 3
typedef struct calm_fusion {
    const char *parts[CALM_FUSED_PARTS];    /* "q_proj", "k_proj", "v_proj"; NULL behind the last        */
    const char *fused;                      /* of the module that engines make; NULL: none that configurations name */
} calm_fusion;

/* Rows of a linear that give the channels of a later job's input, head by head: channel i of head h is row
 * first + h stride + i of the linear and channel (h readers + r) width + i of the input, for each reader r. */
typedef struct calm_feed {
    calm_role role;
    size_t first, stride;    /* of rows                                                              */
    size_t heads, width;     /* heads of `width` channels                                            */
    size_t readers;          /* heads of the input that read one of these: they share a scale        */
    bool rotates;            /* nothing between rows and readers treats channels of a head apart: they may be turned */
    bool groups;             /* transforms are told which channels share one, were it each its own   */
} calm_feed;

/* A sublayer in a window, as learning sees it. */
typedef struct calm_kind_pass {
    const calm_block *block;
    const calm_rope *rope;
    const float *x, *h;      /* [T, D] what the block's residual has, and what f reads */
    const calm_span *span;
} calm_kind_pass;

/* Both directions of learning (block_back.h); sizes are of ctx->scratch for T tokens. */
typedef struct calm_kind_back {
    size_t tape_bytes;       /* of the struct that `forward` fills in */

    /* y [T, D] = f(h), as `run` gives it.  What the tape points to is left in ctx->scratch. */
    calm_status (*forward)(calm_ctx *ctx, const calm_kind_pass *pass, float *y, void *tape);

    /* From dy [T, D]: gradients that are wanted are added to, lengths written, dh [T, D] written (NULL: not wanted);
     * what goes to x otherwise than by h is added to dx [T, D], which may be dy. */
    calm_status (*back)(calm_ctx *ctx, const calm_kind_pass *pass, const void *tape, const float *dy,
                        const calm_block_grads *grads, float *dh, float *dx);

    /* What `forward` leaves behind; the most that it holds besides, and that `back` does, workers included. */
    size_t (*kept_bytes)(const calm_config *config, size_t n_tokens);
    size_t (*forward_bytes)(const calm_config *config, size_t n_tokens, size_t n_threads);
    size_t (*back_bytes)(const calm_config *config, size_t n_tokens, size_t n_threads);

    /* Instead of those two, where they depend on what the loader leaves of an expert. */
    size_t (*routed_forward_bytes)(const calm_config *config, size_t n_tokens, size_t expert_bytes, size_t n_threads);
    size_t (*routed_back_bytes)(const calm_config *config, size_t n_tokens, size_t expert_bytes, size_t n_threads);
} calm_kind_back;

struct calm_kind {
    const char *name;                 /* as kinds.def has it */
    calm_sublayer slot;
    const calm_kind_job *jobs;        /* [n_jobs] in the order in which they run: the first reads the sublayer's      */
    size_t n_jobs;                    /* input; the product of the last, of one linear, is the sublayer's output      */
    const calm_kind_word *words;      /* [n_words] of its roles */
    size_t n_words;
    const calm_fusion *fusions;       /* [n_fusions] */
    size_t n_fusions;
    const calm_kind_plain *plains;    /* [n_plains] */
    size_t n_plains;
    const calm_hook *hooks;           /* [n_hooks] besides the inputs of its jobs and the slot's output */
    size_t n_hooks;
    bool routed;                      /* a mixture: its jobs are those of the shared expert and of each expert, and
                                         calm_moe_* (moe.h) run it over all windows instead of `run` */

    /* Has a block the role, beyond what the family names?  NULL: yes. */
    bool (*has)(const calm_config *config, calm_role role);

    /* [out, in] of a role that the block has. */
    void (*shape)(const calm_config *config, calm_role role, long expert, size_t *out, size_t *in);

    /* Keys of config.json that this shape follows from, for messages.  NULL: what is said is enough. */
    const char *(*keys)(calm_role role);

    /* Dimensions of a plain tensor that the family names, *n_dims of them; 0: this block has none.  NULL: no plains. */
    void (*plain_shape)(const calm_config *config, calm_plain plain, size_t shape[CALM_PLAIN_DIMS], int *n_dims);

    /* Width of one of `hooks`; 0: the block has it not.  NULL: it has none. */
    size_t (*hook_width)(const calm_config *config, calm_hook hook, long expert);

    /* The rows that give the input of a CALM_FOLD_ROWS job; false: a function stands between, nothing takes its scale.
     * NULL: there is no such job. */
    bool (*feed)(const calm_config *config, calm_job_kind job, long expert, calm_feed *out);

    /* f of the sublayer, without norms and residual: out [T, D] from h [T, D], observed at its hook points but the
     * slot's output.  NULL of a mixture. */
    calm_status (*run)(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, const float *h,
                       const calm_span *span, float *out, const calm_observer *observer);

    /* Floats that tokens leave for all after them, whatever their number (calm_past_state); NULL: keys and values of
     * each. */
    size_t (*state)(const calm_config *config);

    /* What `run` holds of ctx->scratch at most.  `prepared`: inputs of linears are scaled or quantized. */
    size_t (*scratch_bytes)(const calm_config *config, size_t n_tokens, bool prepared);

    /* Operations of a token, but for the products with weights, in a window of `window` tokens; NULL: few. */
    double (*operations)(const calm_config *config, double window);

    /* Of that what a thread holds that helps with another's window; NULL: nothing. */
    size_t (*helper_bytes)(const calm_config *config, size_t n_tokens);

    const calm_kind_back *back;       /* NULL: learning and gradient weights are refused by the kind's name */
};

/* The initialiser of one of its lists by the array of the same name, and of its length. */
#define CALM_KIND_LIST(list) .list = list, .n_##list = sizeof list / sizeof *list

/* Those that families name (calm_block_shape). */
extern const calm_kind calm_kind_mla;

/* The known kinds, *n of them, in the order of kinds.def. */
const calm_kind *const *calm_kinds(size_t *n);

/* The i-th fusion of all kinds; NULL: there are no more. */
const calm_fusion *calm_fusion_at(size_t i);

/* Have all sublayers gradients, and what follows them? */
bool calm_kinds_have_back(const calm_config *config);

/* CALM_EUNSUPPORTED, naming block and kind: a sublayer has no gradients, which `option` takes. */
calm_status calm_kinds_need_back(calm_ctx *ctx, const calm_config *config, const char *option);

/* The kind of a sublayer; NULL: the block has none in this slot. */
const calm_kind *calm_kind_at(const calm_config *config, size_t block, calm_sublayer slot);

/* The same of a block's own config, where a mixture counts as the MLP that each of its experts is. */
const calm_kind *calm_kind_dense(const calm_config *config, calm_sublayer slot);

/* The kind of a sublayer of a block that is loaded. */
const calm_kind *calm_block_kind(const calm_block *block, calm_sublayer slot);

/* The last slot of a block that holds a sublayer, whose output completes the block's. */
calm_sublayer calm_block_last_slot(const calm_config *config);

/* What the table says of a job of a block whose config it is. */
const calm_kind_job *calm_job_traits(const calm_config *config, calm_job_kind job);

/* The job whose input a candidate of `job` is scored from: itself where it is the last, whose product alone is made
 * again; else the first, since all of the sublayer runs with the one weight replaced. */
calm_job_kind calm_job_scored_from(const calm_config *config, calm_job_kind job);

/* Bit k: the input of calm_job_kind k is needed to score candidates of `jobs` (bits too) of a sublayer, and with `unit`
 * the sublayer as a whole. */
unsigned calm_scored_inputs(const calm_config *config, calm_sublayer sublayer, unsigned jobs, bool unit);

/* Is a job one of the slot's? */
bool calm_slot_has_job(const calm_config *config, calm_sublayer slot, calm_job_kind job);

/* Has a block a linear of the job? */
bool calm_job_exists(const calm_config *config, calm_job_kind job);

/* The first job of a slot, which reads the sublayer's input. */
calm_job_kind calm_slot_first_job(const calm_config *config, calm_sublayer slot);

/* The last job of a slot, whose product is the sublayer's output. */
calm_job_kind calm_slot_last_job(const calm_config *config, calm_sublayer slot);

/* The name that engines give the matrix of a job's linears where they fuse them; NULL: they do not. */
const char *calm_job_fused(const calm_names *names, calm_job_kind job);

/* Has any linear of a job a bias? */
bool calm_job_biased(const calm_config *config, calm_job_kind job);

/* Is its product the sublayer's output?  *role: of that linear (NULL: not asked). */
bool calm_job_is_last(const calm_config *config, calm_job_kind job, calm_role *role);

/* What takes the job's input scale, and with CALM_FOLD_ROWS the rows. */
calm_fold calm_job_fold(const calm_config *config, calm_job_kind job, long expert, calm_feed *feed);

/* How many rows feed a job. */
size_t calm_feed_rows(const calm_feed *feed);

/* The k-th feeding row, and the first channel of the input that it gives; of further readers each is `width` behind
 * the one before. */
size_t calm_feed_row(const calm_feed *feed, size_t k);
size_t calm_feed_channel(const calm_feed *feed, size_t k);

/* The feeding row, counted from 0, that gives a channel of the input. */
size_t calm_feed_number(const calm_feed *feed, size_t channel);

/* Width of a hook point of a block or an expert. */
size_t calm_hook_width(const calm_config *config, calm_hook hook, long expert);

/* Is a hook point in the sublayer of this slot?  Of an expert it is what its own linears read and give. */
bool calm_hook_in_slot(const calm_config *config, calm_sublayer slot, long expert, calm_hook hook);

/* Dimensions of a plain tensor of a kind; false: the block has none, or the family does not name it. */
bool calm_plain_shape(const calm_config *config, const calm_kind *kind, calm_plain plain,
                      size_t shape[CALM_PLAIN_DIMS], int *n_dims);

/* Has a block that shares the keys and values of another block a module of this name, which published files keep and
 * nothing reads? */
bool calm_kv_is_left_over(const calm_config *config, const char *module);
