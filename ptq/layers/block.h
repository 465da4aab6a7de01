/* One transformer block: its weights in float32 and its forward pass over one window of tokens.
 *
 *   T tokens of the window   D hidden size   h heads of width d (h_kv for keys and values)   M inner width
 *
 * A block is two sublayers, attention and MLP, each
 *   x' = RESIDUAL(x + OUT(f(IN(x))))
 * with the norms its family has (roles.h).  The MLP may be a mixture of experts (moe.h). */
#pragma once

#include "ptq/arch/config.h"
#include "ptq/base/context.h"
#include "ptq/io/safetensors.h"
#include "ptq/layers/kv_cache.h"
#include "ptq/layers/norm.h"
#include "ptq/layers/observer.h"
#include "ptq/layers/rope.h"
#include "ptq/weights/weight.h"

/* Reads the weights of an expert, weight[GATE], weight[UP] and weight[DOWN], into ctx->out. */
typedef calm_status calm_expert_fn(void *user, calm_ctx *ctx, size_t block, size_t expert,
                                   calm_weight weight[CALM_N_ROLES]);

/* The MLP of a sparse block.  Experts are read when they are needed. */
typedef struct calm_mixture {
    const float *router;                /* [n_experts, D]; NULL: the block is dense             */
    calm_weight shared[CALM_N_ROLES];   /* the shared expert; w NULL: none                      */
    const float *shared_gate;           /* [D] or NULL                                          */
    const float *choice_bias;           /* [n_experts] or NULL (router.h)                       */
    calm_expert_fn *load;
    void *user;                         /* of `load` */
} calm_mixture;

/* The tail of a block (tail.h); gate.w NULL: it has no per-layer input. */
typedef struct calm_tail {
    float scale;                          /* s                                                    */
    calm_weight gate, projection, context;    /* [P, D], [D, P], C_b [P, D]                       */
    calm_norm norm, context_norm;         /* of D and of P                                        */
    const calm_tensor *embed, *table;     /* [V, D], [V, n_blocks P], as they are stored; borrowed */
} calm_tail;

/* Weights of a block's residual streams (streams.h); a block loaded for one sublayer has only that sublayer's. */
typedef struct calm_streams {
    calm_norm router_norm, laurel_norm;
    const float *router;                  /* [n, D]                                                */
    const float *predict, *correct;       /* [n^2, n], [n, n]                                      */
    const float *scale;                   /* [D]; NULL: none                                       */
    calm_weight left, right;              /* [R, D], [D, R]                                        */
    calm_weight *split, *merge;           /* [n - 1] linears [D, D] in the first and the last block; else NULL */
} calm_streams;

typedef struct calm_block {
    size_t index;
    const calm_config *config;
    calm_weight weight[CALM_N_ROLES];
    calm_norm norm[CALM_N_SUBLAYERS][CALM_N_NORM_PLACES];
    calm_norm plain[CALM_N_PLAINS];    /* norms; of other tensors only w is set; w NULL: none (kind.h) */
    const float *distance;       /* relative position bias of scores (distance.h), or NULL */
    calm_kv_scales kv;           /* scales of the 8-bit KV cache (kv_cache.h) */
    calm_kv_peaks *kv_peaks;     /* gets the largest |k| and |v|, to calibrate such a cache; or NULL */
    calm_mixture moe;
    calm_tail tail;
    calm_streams streams;
} calm_block;

/* Returns the kind of a sublayer of a loaded block (kind.h). */
const calm_kind *calm_block_kind(const calm_block *block, calm_sublayer slot);

struct calm_past;

/* The tokens of one window. */
typedef struct calm_span {
    size_t window;                /* the window's number, for observers                  */
    size_t n_tokens;              /* T                                                   */
    const uint32_t *positions;    /* [T] increasing; NULL = 0, 1, ...                    */
    const uint32_t *ids;          /* [T] token ids, for families whose blocks read them (tail.h); else may be NULL */
    float *carried;               /* [T, config.carried] keys and values that one block writes and later ones read, and
                                   * residual streams; NULL: nothing reads what a block would write */
    float *shared;                /* [T, D] normalised rows that attention writes and the MLP reads, in families where
                                   * both have the same input (calm_arch.parallel); else NULL */
    struct calm_past *past;       /* state of earlier tokens (past.h): the span's tokens follow its past->n tokens, and
                                   * `carried` begins at the first of those; NULL: there are no earlier tokens */
} calm_span;

/* Computes f of the attention sublayer, without norms and residual: out [T, D] from h [T, D]. */
calm_status calm_block_attention(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, const float *h,
                                 const calm_span *span, float *out, const calm_observer *observer);

/* Returns its peak bytes of ctx->scratch for T tokens.  `prepared`: inputs of its linears are scaled or quantized. */
size_t calm_block_attention_scratch_bytes(const calm_config *config, size_t n_tokens, bool prepared);

/* Returns the bytes of ctx->scratch that each additional thread holds when several share the heads of a window. */
size_t calm_heads_attend_bytes(const calm_config *config, size_t n_tokens);

/* Applies the activation function in place to n values. */
void calm_activate(calm_activation activation, size_t n, float *x);

/* Returns that function. */
typedef void calm_activate_fn(size_t n, float *x);
calm_activate_fn *calm_activation_of(calm_activation activation);

/* Runs a gated or plain MLP: out [n, D] from h [n, D].  `seen` names the window or expert of the rows for the observer;
 * its hook, x, n_rows and width are ignored. */
calm_status calm_mlp_run(calm_ctx *ctx, const calm_config *config, const calm_weight weight[CALM_N_ROLES],
                         const float *h, size_t n, float *out, const calm_observer *observer,
                         const calm_observation *seen);

/* Returns its peak bytes of ctx->scratch.  `expert`: number of an expert, or CALM_NO_EXPERT for the block's MLP. */
size_t calm_mlp_run_scratch_bytes(const calm_config *config, long expert, size_t n, bool prepared);

/* Computes from the input [T, in] of calm_job_scored_from the output [T, D] of a dense job's sublayer as it is added to
 * the residual: the point at which candidates are scored. */
calm_status calm_block_from_job(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, calm_job_kind job,
                                const float *input, const calm_span *span, float *out);

/* Runs one sublayer of a dense block, or the attention of any block, in place: x [T, D]. */
calm_status calm_block_sublayer(calm_ctx *ctx, const calm_block *block, calm_sublayer sublayer, const calm_rope *rope,
                                float *x, const calm_span *span, const calm_observer *observer);

/* Returns its peak bytes of ctx->scratch, for one block by its own config or for any block by the model's; the MLP
 * counts as a dense one. */
size_t calm_block_sublayer_scratch_bytes(const calm_config *config, calm_sublayer sublayer, size_t n_tokens,
                                         bool prepared);

/* Returns the bytes of ctx->scratch that each additional thread holds when several run one window; the maximum over
 * blocks, where they differ. */
size_t calm_block_sublayer_helper_bytes(const calm_config *config, calm_sublayer sublayer, size_t n_tokens);

/* Ends a sublayer: applies the OUT norm and the residual scale to its output y [T, D] in place, adds y to x [T, D], and
 * applies the RESIDUAL norm and, after the last sublayer, the tail.  Observed: y, and after the last sublayer x. */
calm_status calm_block_add(calm_ctx *ctx, const calm_block *block, calm_sublayer sublayer, float *y, float *x,
                           const calm_span *span, const calm_observer *observer);

/* Runs both sublayers of a dense block in place: x [T, D]. */
calm_status calm_block_run(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, float *x,
                           const calm_span *span, const calm_observer *observer);
