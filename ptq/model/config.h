/* config.json: what the forward pass needs, checked.
 *
 * Both spellings are read: the classic one (torch_dtype, rope_theta, rope_scaling) and that of transformers 5
 * (dtype, rope_parameters).  Every key is either read, known to change nothing, off (null or false), or an error: a
 * setting that would change the computation is never ignored. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/base/option.h"
#include "ptq/io/json.h"
#include "ptq/model/delta.h"
#include "ptq/model/mamba.h"
#include "ptq/model/roles.h"
#include "ptq/tensor/dtype.h"

/* No dimension of a real model comes near; keeps products of two within 64 bits. */
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
    bool odd;                           /* angles are those of r - 1 channels, the share of the head     */
    bool neighbours;                    /* channel 2 c turns with 2 c + 1; else c with c + r / 2         */
    double original;                    /* positions the model was first trained on                      */
    double low_freq, high_freq;         /* llama3                                                        */
    double beta_fast, beta_slow;        /* yarn                                                          */
    bool truncate;
    const double *long_factor, *short_factor;    /* [r / 2] longrope                                     */
    double m;                           /* cos and sin are multiplied by it                              */
    double m_long;                      /* longrope: by this beyond the original positions               */
    double m_all;                       /* scores of latent attention by its square                      */
    double share;                       /* proportional: of the channels that turn                       */
} calm_rope_config;

/* Rotary embeddings a model may have: one for all blocks, or a second one for blocks that slide. */
typedef enum calm_rope_set { CALM_ROPE_GLOBAL, CALM_ROPE_LOCAL, CALM_N_ROPES } calm_rope_set;

typedef enum calm_router_score {
    CALM_ROUTER_SOFTMAX,          /* over all experts                                        */
    CALM_ROUTER_SIGMOID,
    CALM_ROUTER_SPARSEMIXER,      /* two rounds, each a softmax over what is near the largest */
} calm_router_score;

/* Widths of latent attention (latent.h), a head's where nothing else is said. */
typedef struct calm_latent_config {
    size_t q_rank, kv_rank;       /* of a token's narrow rows; q_rank 0: queries are one product */
    size_t nope, rope, value;     /* of a key's own channels, of its shared ones, which turn, and of a value */
} calm_latent_config;

#define CALM_ROUTER_GROUPS 64     /* most groups of experts */

typedef struct calm_moe_config {
    size_t n_experts, top_k;      /* 0 experts: a dense model                                */
    size_t inner, shared_inner;   /* widths of an expert and of the shared one (0: none)     */
    size_t latent;                /* width of what experts read and give, which linears lead to and from; 0: that of
                                     the model                                               */
    bool norm_top_k;              /* weights of the chosen experts are divided by their sum  */
    bool *sparse;                 /* [n_blocks] the MLP of this block is a mixture           */
    calm_router_score score;      /* router.h has the formulas                               */
    bool bias, shared_bias;       /* linears of experts, and of the shared one, have biases   */
    bool choice_bias;             /* a vector is added to the scores for the choice alone    */
    bool by_logit;                /* the choice is by logits: scores may be equal where those differ */
    bool weighs_input;            /* weights multiply what experts read, not what they give  */
    size_t n_groups, top_groups;  /* of experts; 0 or 1: none                                */
    bool group_by_max;            /* a group counts by its largest score, not its two        */
    float sum_plus, sum_min;      /* added to the sum that weights are divided by; its least */
    float scale;                  /* of the weights, last                                    */
    float jitter;                 /* sparsemixer's eps                                       */
} calm_moe_config;

/* Where attention has its keys and values from. */
typedef enum calm_kv_use {
    CALM_KV_OWN,
    CALM_KV_KEPT,      /* its own, and later blocks read them too             */
    CALM_KV_SHARED,    /* those of an earlier block: it has q and o alone     */
} calm_kv_use;

/* Of blocks whose mixer is Mamba-2. */
typedef struct calm_mamba_config {
    calm_mamba_shape shape;
    calm_mamba_limits limits;     /* of steps                                                */
    bool conv_bias;               /* the convolution has one                                 */
    calm_activation activation;   /* behind the convolution                                  */
} calm_mamba_config;

/* Streams of a block's residual (streams.h). */
typedef struct calm_stream_config {
    size_t n, active;             /* how many (0: the residual is one), and which the sublayers see */
    size_t at;                    /* column of the first in a token's carried row, n D floats    */
    size_t rank;                  /* of the low-rank branch next to attention                     */
    bool scale;                   /* a factor stands before the gate of the block's own input    */
} calm_stream_config;

/* What may differ between blocks of a model whose blocks are not alike. */
typedef struct calm_block_shape {
    const calm_kind *kind[CALM_N_SUBLAYERS];    /* kinds of its sublayers; NULL: it has none in this slot */
    size_t n_heads, n_kv, head_dim, inner;
    float gate_sparsity;      /* of what the MLP's activation function reads (gaussian_top_k.h); 0: none */
    bool k_is_v;              /* no linear of v: values are what k's gives, before its norm and rotation */
    calm_kv_use kv;
    size_t kv_at;             /* kept and shared: column of the keys in a token's carried row, values behind them */
} calm_block_shape;

/* q at position p, of some families counted from 1, times 1 + beta ln(1 + floor(p / length)). */
typedef struct calm_growth_config {
    float beta;                   /* 0: it does not grow                                     */
    double length;                /* positions                                               */
    bool from_one;
    bool unrotated;               /* in blocks without a rotary embedding; else in those with one */
} calm_growth_config;

typedef struct calm_config calm_config;
struct calm_config {
    const calm_arch *arch;
    calm_block_shape *shapes;         /* [n_blocks] where blocks differ; NULL: they are alike    */
    calm_config *blocks;              /* [n_blocks] what each is by its shape; NULL with it     */
    bool varied;                      /* it is the config of such a block, and `kind` counts     */
    const calm_kind *kind[CALM_N_SUBLAYERS];    /* its own; a mixture is an MLP here             */
    size_t hidden, inner;             /* D; width of the MLP                                    */
    size_t n_blocks, vocab;
    size_t n_heads, n_kv, head_dim;   /* query heads, key/value heads, width of each            */
    calm_latent_config latent;        /* rope 0: attention is not latent                        */
    calm_delta_shape delta;           /* of gated delta nets                                    */
    calm_mamba_config mamba;          /* of Mamba-2                                             */
    size_t conv_width;                /* tokens that short convolutions see                     */
    size_t max_positions, n_types;    /* rows of the position and type embeddings, encoders     */
    size_t position_base;             /* row of the first token's position; not 0: tokens count, padding (id
                                         position_base - 1) does not, and has row position_base - 1 */
    size_t n_distances;               /* rows of the table of distances (distance.h)            */
    bool both_ways;                   /* every token sees every other                           */
    bool norm_bias;                   /* LayerNorms have one                                    */
    const calm_pooling *pooling;      /* of sentences (pooling.h); NULL: the mean of rows       */
    float norm_eps;
    calm_rope_config rope[CALM_N_ROPES];
    bool *local_rope;                 /* [n_blocks] is rotated by rope[CALM_ROPE_LOCAL]         */
    bool *no_rope;                    /* [n_blocks] is not rotated; NULL: all are               */
    bool tied;                        /* the head is the embedding                              */
    bool head_bias;                   /* the head of a decoder has one                          */
    bool bias[CALM_N_ROLES];          /* this role's linear has one                             */
    calm_activation activation;
    float glu_limit, glu_alpha;       /* of a clamped gate (calm_vec_clamped_glu); 0: `activation`  */
    calm_activation head_activation;  /* of a masked language model's head                      */
    calm_qk_norm qk_norm;
    float attention_scale;            /* of q . k                                               */
    float attention_cap, logit_cap;   /* s = cap tanh(s / cap); 0: none                         */
    float embedding_scale;
    float residual_scale;             /* of what a sublayer adds; 0: none                       */
    float logit_scale;                /* before the cap; 0: none                                */
    bool k_is_v;                      /* of a block's own config, as in its shape */
    calm_kv_use kv;
    size_t kv_at;
    size_t carried;                   /* floats of a token that blocks hand on next to its hidden row: keys and
                                         values that later blocks share, streams; 0: none       */
    float qkv_limit;                  /* most that q, k (normalised, not turned) and v are, of either sign; 0: none */
    bool value_norm;                  /* each head of v is divided by the root of its mean square */
    size_t per_layer;                 /* width of the input that each block has of a token's id (tail.h); 0: none */
    size_t per_layer_rows;            /* of its table; an id beyond has row 0                    */
    calm_stream_config streams;       /* streams.h                                               */
    float gate_sparsity;              /* of a block's own config, as in its shape                */
    bool output_gate;                 /* q's linear has of each head d rows of q and d of a gate: o reads the context
                                         times sigmoid(gate)                                    */
    calm_growth_config query_growth;  /* of queries with their position                         */
    size_t down_hadamard;             /* down reads x H, H of this many channels a block (tensor/rotation.h); 0: x */
    size_t *window;                   /* [n_blocks] keys a query sees, 0 = all; both ways: those at a distance below it
                                         on either side */
    bool chunked;                     /* windows stand still: a query sees the keys of the chunk that it is in */
    calm_moe_config moe;
    calm_dtype dtype;                 /* as config.json states it                               */
    bool dtype_known;                 /* false: it does not, and dtype is the embedding's       */
};

/* Read and check; arrays live in ctx->out.  `root` is the parsed config.json at `path`.
 * CALM_EUNSUPPORTED: unknown architecture (lists the known ones), setting or key.  CALM_EFORMAT: out of range. */
calm_status calm_config_read(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *out);

/* The same; keys of these names that calm does not know are taken to change nothing, each with a note.  A key that is
 * known to change the forward pass is refused all the same.  NULL: none. */
calm_status calm_config_read_accepting(calm_ctx *ctx, const char *path, const calm_json *root,
                                       const calm_words *accepted, calm_config *out);

/* The config of one block: the model's, with what differs there.  Functions that take the config of a block, or whose
 * result depends on a width, take this one. */
const calm_config *calm_config_at(const calm_config *config, size_t block);

/* Copy what all blocks have in common into the configs of blocks: after each change of such a value. */
void calm_config_share(calm_config *config);

/* Tokens of the longest window that an encoder with a table of positions reads. */
size_t calm_config_positions(const calm_config *config);

/* Has any block experts?  Those multiply the rows of all windows together, and are loaded by what is routed to them. */
bool calm_config_is_mixture(const calm_config *config);

/* ---- for arch_<family>.c ---- */

/* A whole number 1 .. CALM_SIZE_LIMIT; `fallback` NULL: it must be there. */
calm_status calm_config_size(calm_ctx *ctx, const char *path, const calm_json *root, const char *key,
                             const int64_t *fallback, size_t *out);

/* The activation function that `key` names, `usual` when it is absent. */
calm_status calm_config_activation(calm_ctx *ctx, const char *path, const calm_json *root, const char *key,
                                   const char *usual, calm_activation *out);

/* Fill config->window: "layer_types" lists which blocks slide; without it `slides` decides (NULL: none).  Their
 * width is "sliding_window", or `fallback` when the key is absent; null is none, and 0 where no block slides.
 * `pattern` is passed to `slides`. */
typedef bool calm_slides_fn(size_t block, int64_t pattern);
calm_status calm_config_windows(calm_ctx *ctx, const char *path, const calm_json *root, int64_t fallback,
                                calm_slides_fn *slides, int64_t pattern, calm_config *config);

/* For `slides`: every block does. */
bool calm_slides_always(size_t block, int64_t pattern);

/* The first block and every other one do. */
bool calm_slides_every_other(size_t block, int64_t pattern);

/* All but every pattern-th block slide. */
bool calm_slides_between(size_t block, int64_t pattern);

/* "sliding_attention" without the future becomes both ways: of `width` keys a query sees half on either side, and
 * its own. */
void calm_config_windows_both_ways(calm_config *config);

/* config->shapes as usual, of a family that varies (calm_arch) and changes them when it reads its config: every block
 * has attention and an MLP, which moe.sparse makes a mixture. */
calm_status calm_config_vary(calm_ctx *ctx, calm_config *config);

/* Make the configs of blocks from config->shapes, where there are such; by calm_config_read. */
calm_status calm_config_divide(calm_ctx *ctx, calm_config *config);

/* Has the list of this key an entry for each block?  What is no list has none.  CALM_EFORMAT: it has not. */
calm_status calm_config_one_per_block(calm_ctx *ctx, const char *path, const char *key, const calm_json *list,
                                      const calm_config *config);

/* config->no_rope for a family to fill in. */
calm_status calm_config_new_no_rope(calm_ctx *ctx, calm_config *config);

/* The same from "no_rope_layers", which has 1 for a block that is rotated and at least one entry for each block; where
 * it is absent, or with `empty` has none, every "no_rope_layer_interval"-th (4) block has no rotary embedding.
 * CALM_EFORMAT: another length, another entry, an interval below 1. */
calm_status calm_config_no_rope(calm_ctx *ctx, const char *path, const calm_json *root, bool empty,
                                calm_config *config);

/* Biases of the three linears of an MLP by "mlp_bias", absent: none. */
calm_status calm_config_mlp_biases(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config);

/* A bias of every linear, or none, by "use_bias". */
calm_status calm_config_use_bias(calm_ctx *ctx, const char *path, const calm_json *root, bool usual,
                                 calm_config *config);

/* Granite's multipliers, of which each is 1 when absent: embedding_multiplier, attention_multiplier (the scale of
 * scores), residual_multiplier, and logits_scaling, which divides. */
calm_status calm_config_multipliers(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config);

/* CALM_EUNSUPPORTED unless each of the n keys is absent or has its only known value, which `value` spells in JSON. */
typedef struct calm_fixed_key {
    const char *key, *value;
} calm_fixed_key;
calm_status calm_config_fixed(calm_ctx *ctx, const char *path, const calm_json *root, const calm_fixed_key *keys,
                              size_t n);

/* Biases of q, k, v and o by "attention_bias", absent: none. */
calm_status calm_config_attention_biases(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config);

/* A switch: `usual` when the key is absent; null is off, as the reference's code takes it. */
calm_status calm_config_switch(calm_ctx *ctx, const char *path, const calm_json *root, const char *key, bool usual,
                               bool *out);

/* Keys of a mixture, where a family has its own; whether weights are divided by their sum when that key is absent. */
typedef struct calm_moe_keys {
    const char *experts, *top_k, *inner;
    bool norm;
} calm_moe_keys;

/* Fill n_experts, top_k, inner and norm_top_k (norm_topk_prob) of config->moe; every block is sparse. */
calm_status calm_config_mixture(calm_ctx *ctx, const char *path, const calm_json *root, const calm_moe_keys *keys,
                                calm_config *config);

/* Values of absent keys, which differ between the classes. */
typedef struct calm_grouped_defaults {
    int64_t shared, dense;    /* n_shared_experts, first_k_dense_replace */
    double scale;             /* routed_scaling_factor                   */
    int64_t groups, top;      /* n_group, topk_group                     */
} calm_grouped_defaults;

/* The rest of DeepSeek's mixtures: n_shared_experts, first_k_dense_replace, n_group, topk_group and
 * routed_scaling_factor; scores are sigmoids, and a bias counts for the choice. */
calm_status calm_config_grouped(calm_ctx *ctx, const char *path, const calm_json *root,
                                const calm_grouped_defaults *defaults, calm_config *config);

/* Both of those by DeepSeek's keys; `norm`: of norm_topk_prob when it is absent. */
calm_status calm_config_deepseek_mixture(calm_ctx *ctx, const char *path, const calm_json *root, bool norm,
                                         const calm_grouped_defaults *defaults, calm_config *config);

/* Sizes of latent attention: config->latent, n_kv, head_dim (of a query) and attention_scale; before the rotary
 * embedding is read. */
calm_status calm_config_latent_heads(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config);

/* The rest, for read_config: the scale under yarn, the order of channels, biases, and the kind of every block. */
calm_status calm_config_latent(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config);

/* Fill config->moe from num_experts (or num_local_experts), num_experts_per_tok, moe_intermediate_size,
 * norm_topk_prob, decoder_sparse_step and mlp_only_layers. */
calm_status calm_config_experts(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config);

/* Fill config->rope (config_rope.c).  CALM_EUNSUPPORTED: a kind or setting that is not known.  CALM_EFORMAT. */
calm_status calm_config_rope(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config);

/* CALM_EUNSUPPORTED, naming it, for a key of config.json that nothing reads and that may matter (config_keys.c). */
calm_status calm_config_check_keys(calm_ctx *ctx, const char *path, const calm_json *root, const calm_arch *arch,
                                   const calm_words *accepted);
