/* One transformer block: its weights in float32 and its computation over one window of tokens.
 *
 *   T tokens of the window   D hidden size   h heads of width d (h_kv for keys and values)   M inner width
 *
 * A block is two sublayers, attention and MLP, each
 *   x' = RESIDUAL(x + OUT(f(IN(x))))
 * with the norms its family has (roles.h).  The MLP may be a mixture of experts (moe.h). */
#pragma once

#include "ptq/base/context.h"
#include "ptq/io/safetensors.h"
#include "ptq/model/config.h"
#include "ptq/model/kv_cache.h"
#include "ptq/model/norm.h"
#include "ptq/model/observer.h"
#include "ptq/model/rope.h"
#include "ptq/model/weight.h"

/* Read expert `expert` of a block: weight[GATE], weight[UP], weight[DOWN], into ctx->out. */
typedef calm_status calm_expert_fn(void *user, calm_ctx *ctx, size_t block, size_t expert,
                                   calm_weight weight[CALM_N_ROLES]);

/* The MLP of a sparse block.  Experts are read when they are needed. */
typedef struct calm_mixture {
    const float *router;                /* [n_experts, D]; NULL: the block is dense             */
    calm_weight shared[CALM_N_ROLES];   /* the expert that sees every token; w NULL: none       */
    const float *shared_gate;           /* [D] or NULL                                          */
    const float *choice_bias;           /* [n_experts] or NULL (router.h)                       */
    calm_expert_fn *load;
    void *user;                         /* of `load` */
} calm_mixture;

/* What follows the sublayers of a block (tail.h); w NULL: there are no per-layer inputs. */
typedef struct calm_tail {
    float scale;                          /* s                                                    */
    calm_weight gate, projection, context;    /* [P, D], [D, P], C_b [P, D]                       */
    calm_norm norm, context_norm;         /* of D and of P                                        */
    const calm_tensor *embed, *table;     /* [V, D], [V, n_blocks P], as they are stored; borrowed */
} calm_tail;

/* What a block does between its streams (streams.h); of either sublayer its own part alone. */
typedef struct calm_streams {
    calm_norm router_norm, laurel_norm;
    const float *router;                  /* [n, D]                                                */
    const float *predict, *correct;       /* [n^2, n], [n, n]                                      */
    const float *scale;                   /* [D]; NULL: there is none                              */
    calm_weight left, right;              /* [R, D], [D, R]                                        */
    calm_weight *split, *merge;           /* [n - 1] of [D, D], of the first and the last block; NULL elsewhere */
} calm_streams;

typedef struct calm_block {
    size_t index;
    const calm_config *config;
    calm_weight weight[CALM_N_ROLES];
    calm_norm norm[CALM_N_SUBLAYERS][CALM_N_NORM_PLACES];
    calm_norm plain[CALM_N_PLAINS];    /* of a norm all; else w alone counts; w NULL: there is none (kind.h) */
    const float *distance;       /* added to scores (distance.h), or NULL */
    calm_kv_scales kv;           /* of the cache of keys and values */
    calm_kv_peaks *kv_peaks;     /* that calibrates one; NULL: nobody asks */
    calm_mixture moe;
    calm_tail tail;              /* what follows the sublayers */
    calm_streams streams;
} calm_block;

struct calm_past;

/* The tokens of one window. */
typedef struct calm_span {
    size_t window;                /* its number, for observers                           */
    size_t n_tokens;              /* T                                                   */
    const uint32_t *positions;    /* [T] rising; NULL = 0, 1, ...                        */
    const uint32_t *ids;          /* [T] of families whose blocks read them (tail.h); others: may be NULL */
    float *carried;               /* [T, config.carried] keys and values that blocks share: written by the one, read
                                   * by others; streams; NULL: nobody reads what a block would write */
    float *shared;                /* [T, D] of a family whose MLP reads what its attention reads: written by the one
                                   * sublayer, read by the other; others: NULL           */
    struct calm_past *past;       /* what tokens before these have left (past.h), whose positions are those of
                                   * `positions`, from past->n on; `carried` begins at the first of them; NULL: these
                                   * are all tokens                                      */
} calm_span;

/* f of the attention sublayer, without norms and residual: out [T, D] from h [T, D]. */
calm_status calm_block_attention(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, const float *h,
                                 const calm_span *span, float *out, const calm_observer *observer);

/* What that holds of ctx->scratch at most, for T tokens.  `prepared`: the inputs of its linears are scaled or
 * quantized. */
size_t calm_block_attention_scratch_bytes(const calm_config *config, size_t n_tokens, bool prepared);

/* Of that what a thread holds that helps with the heads of another's window. */
size_t calm_heads_attend_bytes(const calm_config *config, size_t n_tokens);

/* The activation function in place over n values. */
void calm_activate(calm_activation activation, size_t n, float *x);

/* That function. */
typedef void calm_activate_fn(size_t n, float *x);
calm_activate_fn *calm_activation_of(calm_activation activation);

/* A gated or plain MLP: out [n, D] from h [n, D].  `seen` names the window or
 * expert of the rows; hook, x, n_rows and width are filled in. */
calm_status calm_mlp_run(calm_ctx *ctx, const calm_config *config, const calm_weight weight[CALM_N_ROLES],
                         const float *h, size_t n, float *out, const calm_observer *observer,
                         const calm_observation *seen);

/* What that holds of ctx->scratch at most; `expert`: of which MLP, that of the block or an expert (roles.h). */
size_t calm_mlp_run_scratch_bytes(const calm_config *config, long expert, size_t n, bool prepared);

/* Output [T, D] of a dense job's sublayer as it is added to x, from the input [T, in] of calm_job_scored_from: the
 * score point. */
calm_status calm_block_from_job(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, calm_job_kind job,
                                const float *input, const calm_span *span, float *out);

/* One sublayer of a dense block, or the attention of any, in place: x [T, D]. */
calm_status calm_block_sublayer(calm_ctx *ctx, const calm_block *block, calm_sublayer sublayer, const calm_rope *rope,
                                float *x, const calm_span *span, const calm_observer *observer);

/* What that holds of ctx->scratch at most, by a block's config or for any block by a model's; the MLP is the dense
 * one. */
size_t calm_block_sublayer_scratch_bytes(const calm_config *config, calm_sublayer sublayer, size_t n_tokens,
                                         bool prepared);

/* Of that what a thread holds that helps with another's window; of the block that takes most, where they are not
 * alike. */
size_t calm_block_sublayer_helper_bytes(const calm_config *config, calm_sublayer sublayer, size_t n_tokens);

/* What a sublayer adds, y [T, D] (changed by the OUT norm), added to x [T, D] and normalised; observed as its output
 * and, after the MLP, as the block's. */
calm_status calm_block_add(calm_ctx *ctx, const calm_block *block, calm_sublayer sublayer, float *y, float *x,
                           const calm_span *span, const calm_observer *observer);

/* Both sublayers of a dense block in place: x [T, D]. */
calm_status calm_block_run(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, float *x,
                           const calm_span *span, const calm_observer *observer);
