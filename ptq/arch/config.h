/* The settings of config.json that the forward pass needs, checked.
 *
 * Both spellings are read: the classic one (torch_dtype, rope_theta, rope_scaling) and that of transformers 5
 * (dtype, rope_parameters).  Every key is either read, known to change nothing, off (null or false), or an error: a
 * setting that would change the computation is never ignored. */
#pragma once

#include "ptq/arch/roles.h"
#include "ptq/base/context.h"
#include "ptq/base/option.h"
#include "ptq/io/json.h"
#include "ptq/tensor/dtype.h"

/* The largest dimension that is accepted: far above those of real models, and products of two fit into 64 bits. */
#define CALM_SIZE_LIMIT ((int64_t)1 << 24)

typedef struct calm_arch calm_arch;
typedef struct calm_pooling calm_pooling;
typedef struct calm_kind calm_kind;    /* kind.h */

typedef enum calm_activation {
    CALM_ACTIVATION_SILU,         /* x / (1 + exp(-x))                                            */
    CALM_ACTIVATION_GELU,         /* x/2 (1 + erf(x / sqrt 2))                                    */
    CALM_ACTIVATION_GELU_TANH,    /* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))                */
    CALM_ACTIVATION_GELU_QUICK,   /* x / (1 + exp(-1.702 x))                                      */
    CALM_ACTIVATION_RELU,         /* max(x, 0)                                                    */
    CALM_ACTIVATION_RELU2,        /* max(x, 0)^2                                                  */
} calm_activation;

typedef enum calm_qk_norm {
    CALM_QK_NORM_NONE,
    CALM_QK_NORM_HEAD,     /* over head_dim of each head of q and k, before RoPE                  */
    CALM_QK_NORM_WHOLE,    /* over the whole projection, before it is split into heads            */
    CALM_QK_NORM_BARE,     /* over each head, without a weight, in blocks that are rotated        */
} calm_qk_norm;

typedef enum calm_rope_kind {
    CALM_ROPE_DEFAULT, CALM_ROPE_LINEAR, CALM_ROPE_DYNAMIC, CALM_ROPE_LLAMA3, CALM_ROPE_YARN, CALM_ROPE_LONGROPE,
    CALM_ROPE_PROPORTIONAL
} calm_rope_kind;

/* One rotary embedding (rope.h has the formulas). */
typedef struct calm_rope_config {
    calm_rope_kind kind;
    double theta, factor;
    size_t rotary;                      /* r: rotated channels of a head, even; 0: no rotary embedding   */
    bool odd;                           /* the model asks for r - 1 channels: the angles' exponents divide by r - 1 */
    bool neighbours;                    /* channel 2 c is paired with 2 c + 1; else c with c + r / 2     */
    double original;                    /* number of positions of the first training                     */
    double low_freq, high_freq;         /* llama3                                                        */
    double beta_fast, beta_slow;        /* yarn                                                          */
    bool truncate;
    const double *long_factor, *short_factor;    /* [r / 2] longrope                                     */
    double m;                           /* factor of cos and sin                                         */
    double m_long;                      /* longrope: the same factor beyond the original positions       */
    double m_all;                       /* its square multiplies the scores of latent attention          */
    double share;                       /* proportional: share of the r channels that are rotated        */
} calm_rope_config;

/* Rotary embeddings of a model: one for all blocks, or a second one for blocks with sliding-window attention. */
typedef enum calm_rope_set { CALM_ROPE_GLOBAL, CALM_ROPE_LOCAL, CALM_N_ROPES } calm_rope_set;

typedef enum calm_router_score {
    CALM_ROUTER_SOFTMAX,          /* over all experts                                        */
    CALM_ROUTER_SIGMOID,
    CALM_ROUTER_SPARSEMIXER,      /* two rounds, each a softmax over the logits near the largest */
} calm_router_score;

/* Widths of latent attention (latent.h); nope, rope and value are per head. */
typedef struct calm_latent_config {
    size_t q_rank, kv_rank;       /* of the latent of queries and of keys and values; q_rank 0: q is one linear of h */
    size_t nope, rope, value;     /* of a key's part per head, of its rotated part, which heads share, and of a value */
} calm_latent_config;

#define CALM_ROUTER_GROUPS 64     /* largest number of groups of experts */

typedef struct calm_moe_config {
    size_t n_experts, top_k;      /* experts of a block, and of a token; 0 experts: a dense model */
    size_t inner, shared_inner;   /* inner widths of an expert and of the shared expert (0: none) */
    size_t latent;                /* width of the experts' inputs and outputs, between two linears of the block; 0: the
                                     hidden size                                             */
    bool norm_top_k;              /* weights of the chosen experts are divided by their sum  */
    bool *sparse;                 /* [n_blocks] true: the MLP of the block is a mixture      */
    calm_router_score score;      /* router.h has the formulas                               */
    bool bias, shared_bias;       /* linears of experts, and of the shared expert, have biases */
    bool choice_bias;             /* a vector is added to the scores to choose experts, not to weigh them */
    bool by_logit;                /* experts are chosen by logits: different logits may round to equal scores */
    bool weighs_input;            /* weights multiply the experts' inputs instead of their outputs */
    size_t n_groups, top_groups;  /* groups of experts, and how many a token uses; 0 or 1: no groups */
    bool group_by_max;            /* a group's score is its largest one; else the sum of its two largest */
    float sum_plus, sum_min;      /* weights are divided by max(sum + sum_plus, sum_min)     */
    float scale;                  /* factor of the weights, applied last                     */
    float jitter;                 /* sparsemixer: eps                                        */
} calm_moe_config;

/* The source of an attention block's keys and values. */
typedef enum calm_kv_use {
    CALM_KV_OWN,       /* the block computes them                             */
    CALM_KV_KEPT,      /* the block computes them, and later blocks read them too */
    CALM_KV_SHARED,    /* an earlier block computes them: this one has only q and o */
} calm_kv_use;

/* Shape of a gated delta net (delta.h). */
typedef struct calm_delta_shape {
    size_t n_key_heads, n_value_heads;     /* n_value_heads is a multiple of n_key_heads */
    size_t key_dim, value_dim;             /* d_k, d_v: channels of a head       */
} calm_delta_shape;

/* Shape of Mamba-2 (mamba.h). */
typedef struct calm_mamba_shape {
    size_t n_heads, n_groups;      /* n_heads is a multiple of n_groups  */
    size_t head_dim, state_dim;    /* channels of a head of x, and of a group of B and C */
} calm_mamba_shape;

/* The range to which time steps are clamped. */
typedef struct calm_mamba_limits {
    float least, most;
} calm_mamba_limits;

/* Settings of blocks whose mixer is Mamba-2. */
typedef struct calm_mamba_config {
    calm_mamba_shape shape;
    calm_mamba_limits limits;     /* range of the time steps                                 */
    bool conv_bias;               /* the convolution has a bias                              */
    calm_activation activation;   /* applied after the convolution                           */
} calm_mamba_config;

/* Rows of the table of relative positions (distance.h). */
#define CALM_DISTANCE_BUCKETS 32

/* Largest number of residual streams; published models have 4. */
#define CALM_STREAMS ((size_t)16)

/* Parallel residual streams (streams.h). */
typedef struct calm_stream_config {
    size_t n, active;             /* number of streams (0: a plain residual); the one that sublayers read */
    size_t at;                    /* column of the first stream in a token's carried row, n D floats */
    size_t rank;                  /* of the low-rank branch next to attention                     */
    bool scale;                   /* the input of the tail's gate is multiplied by a factor for each channel */
} calm_stream_config;

/* The settings of one block, in a model whose blocks differ. */
typedef struct calm_block_shape {
    const calm_kind *kind[CALM_N_SUBLAYERS];    /* kinds of its sublayers; NULL: an empty slot */
    size_t n_heads, n_kv, head_dim, inner;
    float gate_sparsity;      /* share of zeros in the activation function's input (gaussian_top_k.h); 0: off */
    bool k_is_v;              /* v has no linear: values are the output of k's, before k's norm and rotation */
    calm_kv_use kv;
    size_t kv_at;             /* kept and shared: column of the keys in a token's carried row; the values follow them */
} calm_block_shape;

/* Position-dependent scale of queries: q at position p is multiplied by 1 + beta ln(1 + floor(p / length)). */
typedef struct calm_query_scale_config {
    float beta;                   /* 0: no scale                                             */
    double length;                /* in positions                                            */
    bool from_one;                /* p counts from 1; else from 0                            */
    bool unrotated;               /* applies to blocks without a rotary embedding; else to those with one */
} calm_query_scale_config;

typedef struct calm_config calm_config;
struct calm_config {
    const calm_arch *arch;
    calm_block_shape *shapes;         /* [n_blocks] where blocks differ; NULL: all blocks are alike */
    calm_config *blocks;              /* [n_blocks] the config of each block by its shape; NULL if `shapes` is */
    bool varied;                      /* true in an element of `blocks`: `kind` is valid        */
    const calm_kind *kind[CALM_N_SUBLAYERS];    /* of the block; a mixture counts as its experts' MLP */
    size_t hidden, inner;             /* D; inner width of the MLP                              */
    size_t n_blocks, vocab;
    size_t n_heads, n_kv, head_dim;   /* query heads, key/value heads, width of each            */
    calm_latent_config latent;        /* latent.rope 0: attention is not latent                 */
    calm_delta_shape delta;           /* shape of gated delta nets                              */
    calm_mamba_config mamba;          /* settings of Mamba-2                                    */
    size_t conv_width;                /* kernel width of short convolutions, in tokens          */
    size_t max_positions, n_types;    /* rows of the position and token type embeddings of encoders */
    size_t position_base;             /* row of the first position.  If not 0, padding tokens (id position_base - 1)
                                         take row position_base - 1 and are not counted          */
    size_t n_distances;               /* rows of the table of relative positions (distance.h)   */
    bool both_ways;                   /* attention is bidirectional                             */
    bool norm_bias;                   /* LayerNorms have a bias                                 */
    const calm_pooling *pooling;      /* of sentence embeddings (pooling.h); NULL: the mean of rows */
    float norm_eps;
    calm_rope_config rope[CALM_N_ROPES];
    bool *local_rope;                 /* [n_blocks] true: rope[CALM_ROPE_LOCAL] rotates the block */
    bool *no_rope;                    /* [n_blocks] true: no rotation; NULL: all blocks are rotated */
    bool tied;                        /* the head's matrix is the embedding                     */
    bool head_bias;                   /* the head of a decoder has a bias                       */
    bool bias[CALM_N_ROLES];          /* the role's linear has a bias                           */
    calm_activation activation;
    float glu_limit, glu_alpha;       /* of a clamped gate (calm_vec_clamped_glu); 0: `activation` gates */
    calm_activation head_activation;  /* of a masked language model's head                      */
    calm_qk_norm qk_norm;
    float attention_scale;            /* factor of q . k                                        */
    float attention_cap, logit_cap;   /* soft caps of scores and logits: s = cap tanh(s / cap); 0: none */
    float embedding_scale;
    float residual_scale;             /* factor of a sublayer's output; 0: none                 */
    float logit_scale;                /* factor of logits before the cap; 0: none               */
    bool k_is_v;                      /* this, kv and kv_at: as in calm_block_shape, in an element of `blocks` */
    calm_kv_use kv;
    size_t kv_at;
    size_t carried;                   /* floats that a token carries from block to block besides its hidden row: keys
                                         and values that later blocks share, streams; 0: none   */
    float qkv_limit;                  /* q, k (after norms, before rotation) and v are clamped to +- this; 0: off */
    bool value_norm;                  /* each head of v is divided by its root mean square      */
    size_t per_layer;                 /* P: width of the per-layer input of a token's id (tail.h); 0: none */
    size_t per_layer_rows;            /* rows of its table; larger ids use row 0                */
    calm_stream_config streams;       /* streams.h                                               */
    float gate_sparsity;              /* as in calm_block_shape, in an element of `blocks`      */
    bool output_gate;                 /* q's linear gives d rows of q and d of a gate per head: o reads the context
                                         times sigmoid(gate)                                    */
    calm_query_scale_config query_growth;  /* position-dependent scale of queries                    */
    size_t hadamard[CALM_N_JOBS];     /* width of a block of the Hadamard matrix H in the job's input, x H
                                         (hadamard.h); 0: the job reads x                       */
    size_t *window;                   /* [n_blocks] keys that a query sees, 0 = all; bidirectional: keys at a distance
                                         below it on either side                                */
    bool chunked;                     /* a query only sees keys in the same chunk of `window` tokens */
    calm_moe_config moe;
    calm_dtype dtype;                 /* as config.json states it                               */
    bool dtype_known;                 /* false: config.json states none; dtype is the embedding's */
};

/* Reads and checks `root`, the parsed config.json at `path`; arrays are in ctx->out.
 * CALM_EUNSUPPORTED: unknown architecture (lists the known ones), setting or key.  CALM_EFORMAT: out of range. */
calm_status calm_config_read(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *out);

/* Does the same, but ignores unknown keys of the names in `accepted` (NULL: none), each with a note.  A key that is
 * known to change the forward pass is refused all the same. */
calm_status calm_config_read_accepting(calm_ctx *ctx, const char *path, const calm_json *root,
                                       const calm_words *accepted, calm_config *out);

/* Returns the config of one block: the model's, with the settings that differ in this block.  Functions that take the
 * config of a block, or whose result depends on a width, expect this one. */
const calm_config *calm_config_at(const calm_config *config, size_t block);

/* Copies the values that all blocks have in common into config->blocks; call it after each change of such a value. */
void calm_config_copy_common(calm_config *config);

/* Returns the tokens of the longest window that an encoder with a table of positions can read. */
size_t calm_config_positions(const calm_config *config);

/* Does any block have experts?  An expert runs over the rows of all windows at once, and is loaded when tokens are
 * routed to it. */
bool calm_config_is_mixture(const calm_config *config);

/* ---- for arch_<family>.c ---- */

/* Reads a whole number 1 .. CALM_SIZE_LIMIT; `fallback` NULL: the key must be present. */
calm_status calm_config_size(calm_ctx *ctx, const char *path, const calm_json *root, const char *key,
                             const int64_t *fallback, size_t *out);

/* Reads the activation function that `key` names, `usual` when the key is absent. */
calm_status calm_config_activation(calm_ctx *ctx, const char *path, const calm_json *root, const char *key,
                                   const char *usual, calm_activation *out);

/* Fills config->window: "layer_types" lists the blocks with sliding-window attention; without it `slides` decides
 * (NULL: no block has it).  The width is "sliding_window", or `fallback` when the key is absent; null is no window, and
 * so is 0 where no block slides.  `pattern` is passed to `slides`. */
typedef bool calm_slides_fn(size_t block, int64_t pattern);
calm_status calm_config_windows(calm_ctx *ctx, const char *path, const calm_json *root, int64_t fallback,
                                calm_slides_fn *slides, int64_t pattern, calm_config *config);

/* Does the same with the pattern that `key` gives, 1 to 4096, `usual` when it is absent. */
calm_status calm_config_windows_by(calm_ctx *ctx, const char *path, const calm_json *root, int64_t fallback,
                                   const char *key, int64_t usual, calm_slides_fn *slides, calm_config *config);

/* Returns true if the block has a window, which is read before. */
bool calm_config_slides(const calm_config *config, size_t block);

/* For `slides`: every block slides. */
bool calm_slides_always(size_t block, int64_t pattern);

/* For `slides`: blocks 0, 2, 4, ... slide. */
bool calm_slides_every_other(size_t block, int64_t pattern);

/* For `slides`: all but every pattern-th block slide. */
bool calm_slides_between(size_t block, int64_t pattern);

/* For `slides`: all but blocks 0, n, 2 n, ... slide, where n is the pattern. */
bool calm_slides_after_first(size_t block, int64_t pattern);

/* Gives the last block full attention, with a warning where the list says otherwise.  Call it after
 * calm_config_windows. */
void calm_config_full_last(calm_ctx *ctx, const char *path, calm_config *config);

/* Turns causal windows into bidirectional ones: of `width` keys a query sees half on either side, and its own. */
void calm_config_windows_both_ways(calm_config *config);

/* Makes blocks attend within chunks of "attention_chunk_size" tokens (`usual` when absent): those that "layer_types"
 * calls "chunked_attention", without the list those with a rotary embedding.  Call it after calm_config_no_rope.
 * CALM_EUNSUPPORTED: another word than this and "full_attention". */
calm_status calm_config_chunks(calm_ctx *ctx, const char *path, const calm_json *root, int64_t usual,
                               calm_config *config);

/* Fills head_dim, n_kv and k_is_v of config->shapes: "per_layer_config" gives them by the number of a block; without it
 * "global_head_dim" (`usual` when absent) and, with "attention_k_eq_v", "num_global_key_value_heads" are those of full
 * blocks.  Call it after the windows are read.  CALM_EUNSUPPORTED: another setting of a block, or blocks of a type
 * differ.  CALM_EFORMAT: no such block; the sizes do not fit each other. */
calm_status calm_config_block_heads(calm_ctx *ctx, const char *path, const calm_json *root, int64_t usual,
                                    calm_config *config);

/* Allocates config->shapes with the usual sublayers, for a family that sets calm_arch.varies and changes them
 * afterwards: every block has attention and an MLP, or a mixture by moe.sparse. */
calm_status calm_config_new_shapes(calm_ctx *ctx, calm_config *config);

/* Makes config->blocks from config->shapes (NULL: nothing to do).  calm_config_read calls it. */
calm_status calm_config_new_blocks(calm_ctx *ctx, calm_config *config);

/* Checks that `list`, the value of `key`, has an entry for each block.  CALM_EFORMAT: another length, or no list. */
calm_status calm_config_one_per_block(calm_ctx *ctx, const char *path, const char *key, const calm_json *list,
                                      const calm_config *config);

/* Makes the last "num_kv_shared_layers" blocks (`usual` when absent) read the keys and values of the last block of
 * their type before them, which are carried with the hidden states (batch.h).  In families with the key
 * "use_double_wide_mlp" their MLPs may have twice the width.  Call it after the windows and widths are read.
 * CALM_EFORMAT: there is no such block. */
calm_status calm_config_shared_keys(calm_ctx *ctx, const char *path, const calm_json *root, int64_t usual,
                                    calm_config *config);

/* Reads the residual streams of AltUp and the rank of LAuReL's branch.  Call it after calm_config_shared_keys: streams
 * are carried after the keys and values. */
calm_status calm_config_streams(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config);

/* Fills the inner widths of config->shapes where `key` has a list of them, and config->inner with the largest.
 * CALM_EFORMAT: another length than n_blocks, or a width out of range. */
calm_status calm_config_inner_list(calm_ctx *ctx, const char *path, const calm_json *root, const char *key,
                                   calm_config *config);

/* Fills the gate sparsities of config->shapes from the list "activation_sparsity_pattern".  When it is absent the first
 * n blocks of a model with more have the sparsity `usual`.  CALM_EFORMAT: another length, or not in [0, 1). */
calm_status calm_config_gate_sparsity(calm_ctx *ctx, const char *path, const calm_json *root, size_t n, float usual,
                                      calm_config *config);

/* Unless "block_auto_adjust_ff_dim" is off, makes config->inner 2/3 of its value, times "block_ffn_dim_multiplier" (1),
 * rounded up to a multiple of "block_multiple_of" (256).  CALM_EFORMAT: it becomes 0 or too large. */
calm_status calm_config_adjusted_inner(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config);

/* Allocates config->no_rope for a family to fill in. */
calm_status calm_config_new_no_rope(calm_ctx *ctx, calm_config *config);

/* Fills it from "no_rope_layers", which has 1 for a rotated block and at least one entry for each block.  Where the
 * list is absent, or empty and `empty` is set, every "no_rope_layer_interval"-th (4) block has no rotary embedding.
 * CALM_EFORMAT: fewer entries, another entry, an interval below 1. */
calm_status calm_config_no_rope(calm_ctx *ctx, const char *path, const calm_json *root, bool empty,
                                calm_config *config);

/* Fills it from "position_embedding_type": "rope" rotates all blocks with attention, null and "nope" none.
 * CALM_EUNSUPPORTED: another word. */
calm_status calm_config_position_type(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config);

/* Sets whether the linears of an MLP have biases, from "mlp_bias" (absent: they have none). */
calm_status calm_config_mlp_biases(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config);

/* Sets whether all linears have biases, from "use_bias" (absent: `usual`). */
calm_status calm_config_use_bias(calm_ctx *ctx, const char *path, const calm_json *root, bool usual,
                                 calm_config *config);

/* Sets whether the head, where the class has one, has a bias, from the switch `key` (absent: `usual`). */
calm_status calm_config_head_bias(calm_ctx *ctx, const char *path, const calm_json *root, const char *key, bool usual,
                                  calm_config *config);

/* Reads Granite's multipliers, each 1 when absent: embedding_multiplier, attention_multiplier (the scale of scores),
 * residual_multiplier, and logits_scaling, which divides the logits. */
calm_status calm_config_multipliers(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config);

/* Fails with CALM_EUNSUPPORTED unless each key of `pairs`, "KEY=VALUE KEY=VALUE" (NULL: none), is absent or null or has
 * this value: a number, true, false, or a string without its quotes. */
calm_status calm_config_fixed(calm_ctx *ctx, const char *path, const calm_json *root, const char *pairs);

/* Is it one of the keys that this family lists, in `keys` or `fixed`? */
bool calm_config_own_key(const calm_arch *arch, const char *key);

/* Sets whether q, k, v and o have biases, from "attention_bias" (absent: they have none). */
calm_status calm_config_attention_biases(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config);

/* Reads a switch: `usual` when the key is absent; null is off, as in transformers. */
calm_status calm_config_switch(calm_ctx *ctx, const char *path, const calm_json *root, const char *key, bool usual,
                               bool *out);

/* A family's keys for the sizes of a mixture; `norm`: value of norm_topk_prob when absent. */
typedef struct calm_moe_keys {
    const char *experts, *top_k, *inner;
    bool norm;
} calm_moe_keys;

/* Fills n_experts, top_k, inner and norm_top_k (norm_topk_prob) of config->moe; every block becomes sparse. */
calm_status calm_config_mixture(calm_ctx *ctx, const char *path, const calm_json *root, const calm_moe_keys *keys,
                                calm_config *config);

/* Does the same for experts next to an MLP of width config->inner, which counts as the shared expert.  A model has none
 * where the switch `key` is off or absent or, with `key` NULL, where the number of experts is 0.
 * CALM_EUNSUPPORTED: the widths of MLPs differ. */
calm_status calm_config_experts_beside(calm_ctx *ctx, const char *path, const calm_json *root, const char *key,
                                       const calm_moe_keys *keys, calm_config *config);

/* Values of absent keys, which differ between transformers' classes. */
typedef struct calm_grouped_defaults {
    int64_t shared, dense;    /* n_shared_experts, first_k_dense_replace */
    double scale;             /* routed_scaling_factor                   */
    int64_t groups, top;      /* n_group, topk_group                     */
} calm_grouped_defaults;

/* Reads experts that may work in a latent space, "moe_latent_size" (absent: they do not), and the width and the biases
 * ("mlp_bias") of the shared expert, which does not.  Call it after calm_config_deepseek_mixture.
 * CALM_EUNSUPPORTED: both biases and the latent space. */
calm_status calm_config_latent_experts(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config);

/* Calls calm_config_mixture with DeepSeek's keys (`norm`: value of norm_topk_prob when absent), and reads the others of
 * its mixtures: n_shared_experts, first_k_dense_replace, n_group, topk_group and routed_scaling_factor.  Scores are
 * sigmoids, and experts are chosen with a bias. */
calm_status calm_config_deepseek_mixture(calm_ctx *ctx, const char *path, const calm_json *root, bool norm,
                                         const calm_grouped_defaults *defaults, calm_config *config);

/* Reads the sizes of latent attention: config->latent, n_kv, head_dim (of a query) and attention_scale.  Call it before
 * the rotary embedding is read. */
calm_status calm_config_latent_heads(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config);

/* Reads the other settings of latent attention, for read_config: the scale with yarn, the order of channels, biases,
 * and the kind of every block. */
calm_status calm_config_latent(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config);

/* Fills config->moe from num_experts (or num_local_experts), num_experts_per_tok, moe_intermediate_size,
 * norm_topk_prob, decoder_sparse_step and mlp_only_layers. */
calm_status calm_config_experts(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config);

/* Fills moe.sparse: the list `key` has the numbers of sparse blocks; without it every "step_key"-th (1) block is one.
 * CALM_EFORMAT: something else than numbers from 0. */
calm_status calm_config_sparse_list(calm_ctx *ctx, const char *path, const calm_json *root, const char *key,
                                    const char *step_key, calm_config *config);

/* Fills moe.sparse where "mlp_layer_types" lists "dense" and "sparse" blocks.  CALM_EUNSUPPORTED: another word. */
calm_status calm_config_sparse_types(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config);

/* Fills moe.sparse: every "moe_layer_interval"-th (1) block is sparse, from "moe_layer_start_index" (1) to
 * "moe_layer_end_index" (-1: the last). */
calm_status calm_config_sparse_range(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config);

/* Reads query_growth in Llama 4's spelling: the switch "attn_temperature_tuning" (on when absent), "attn_scale" (0.1)
 * and "floor_scale" (8192); it applies to blocks without a rotary embedding. */
calm_status calm_config_query_tuning(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config);

/* Reads query_growth from "llama_4_scaling_beta" and "original_max_position_embeddings" of the rope settings, both of
 * which must be present. */
calm_status calm_config_query_growth(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config);

/* Fills config->rope (config_rope.c).  CALM_EUNSUPPORTED: an unknown kind or setting.  CALM_EFORMAT. */
calm_status calm_config_rope(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config);

/* Adapts config->rope to the head widths of full and of sliding blocks, for read_config.  The family has only the
 * spelling "rope_parameters" {full_attention, sliding_attention}; without it full blocks rotate `share` of the pairs.
 * CALM_EUNSUPPORTED: another spelling, or a kind whose lists depend on the width.  CALM_EFORMAT: no object for a type
 * of block that the model has. */
calm_status calm_config_block_ropes(calm_ctx *ctx, const char *path, const calm_json *root, double share,
                                    calm_config *config);

/* Finds the object of the rope settings, for families whose class has a default on which published files do not rely.
 * CALM_EFORMAT: there is none. */
calm_status calm_config_rope_object(calm_ctx *ctx, const char *path, const calm_json *root, const calm_json **out);

/* Fails with CALM_EUNSUPPORTED where "rope_theta", which nothing reads in a family with a theta_key, contradicts it. */
calm_status calm_config_other_theta(calm_ctx *ctx, const char *path, const calm_json *root, const calm_config *config);

/* Reads the number of rotated channels from `key`, which published files give instead of a share of the head.
 * CALM_EFORMAT: it is odd.  CALM_EUNSUPPORTED: it contradicts "partial_rotary_factor". */
calm_status calm_config_rotary_width(calm_ctx *ctx, const char *path, const calm_json *root, const char *key,
                                     calm_config *config);

/* Reads "short_mscale" and "long_mscale", the factors of cos and sin for short and for long texts, next to the settings
 * of a rotary embedding that is not the plain one.  CALM_EUNSUPPORTED: they differ, and it is not longrope. */
calm_status calm_config_rope_scales(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config);

/* Fails with CALM_EUNSUPPORTED, naming the key, where config.json has a key that nothing reads and that may matter
 * (config_keys.c). */
calm_status calm_config_check_keys(calm_ctx *ctx, const char *path, const calm_json *root, const calm_arch *arch,
                                   const calm_words *accepted);
