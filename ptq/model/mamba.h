/* The scan of Mamba-2 (state space duality): a memory S [d_state, head_dim] per head that fades, and to which each
 * token is added.
 *
 *   S = exp(decay_t) S + step_t B_t x_t^T;   y_t = S^T C_t + D x_t
 *
 * B and C are of groups: a group serves n_heads / n_groups consecutive heads.  (Dao and Gu, arXiv 2405.21060;
 * transformers' modeling_granitemoehybrid.py.) */
#pragma once

#include "ptq/base/context.h"

/* Tokens that calm takes at once: as many as a head has channels in the published models, so that the products over
 * the tokens of a chunk cost about what those with S do. */
#define CALM_MAMBA_CHUNK ((size_t)64)

typedef struct calm_mamba_shape {
    size_t n_heads, n_groups;      /* the first a multiple of the second */
    size_t head_dim, state_dim;    /* of x; of B and C                   */
} calm_mamba_shape;

/* One window.  Rows of x, B and C are `stride` apart: columns of one matrix, as the convolution leaves them. */
typedef struct calm_mamba_rows {
    const float *x;                /* [T, n_heads head_dim]              */
    const float *b, *c;            /* [T, n_groups state_dim]            */
    size_t stride, n_tokens;
    const float *step, *decay;     /* [T, n_heads]: step_t >= 0, decay_t <= 0 */
    const float *skip;             /* [n_heads]: D                       */
} calm_mamba_rows;

/* The range that steps are clamped to. */
typedef struct calm_mamba_limits {
    float least, most;
} calm_mamba_limits;

/* step = softplus(raw + dt_bias) within the limits, decay = -exp(a_log) step; step and decay [T, n_heads], rows of
 * `raw` [T, n_heads] are `stride` apart. */
void calm_mamba_steps(calm_ctx *ctx, size_t n_tokens, size_t n_heads, const float *raw, size_t stride,
                      const float *a_log, const float *dt_bias, calm_mamba_limits limits, float *step,
                      float *decay);

/* out [T, n_heads head_dim]; norms [T, n_heads] the Frobenius norm of each S after each token, or NULL; states
 * [chunks, n_heads, state_dim, head_dim] each S before each chunk, or NULL; memory [n_heads, state_dim, head_dim] each
 * S before the first token, which becomes that behind the last, or NULL: zeros, and it is not kept.  `chunk` tokens at
 * once, >= 1, which changes the rounding alone, as it does where a window is cut.  Parallel over heads.
 * CALM_ENOMEM. */
calm_status calm_mamba_scan(calm_ctx *ctx, const calm_mamba_shape *shape, const calm_mamba_rows *rows, size_t chunk,
                            float *out, float *norms, float *states, float *memory);

/* Elements of `memory`. */
size_t calm_mamba_memory(const calm_mamba_shape *shape);

/* Elements of `states`. */
size_t calm_mamba_states(const calm_mamba_shape *shape, size_t n_tokens, size_t chunk);

/* What it holds of ctx->scratch; and each thread besides that works on a head, without `memory`. */
size_t calm_mamba_scan_bytes(const calm_mamba_shape *shape, size_t n_tokens, size_t chunk);
size_t calm_mamba_head_bytes(const calm_mamba_shape *shape, size_t n_tokens, size_t chunk);

/* y = RMSNorm(y silu(z)) w over groups of channels, in place over [T, n_heads head_dim]; rows of z are `stride` apart
 * and are overwritten; w [n_heads head_dim]. */
void calm_mamba_norm(calm_ctx *ctx, const calm_mamba_shape *shape, size_t n_tokens, const float *w, float eps,
                     float *z, size_t stride, float *y);
