/* The scan of Mamba-2 (state space duality): each head has a state S [state_dim, head_dim], which decays, and to which
 * each token adds.
 *
 *   S = exp(decay_t) S + step_t B_t x_t^T;   y_t = S^T C_t + D x_t
 *
 * B and C belong to groups: each serves n_heads / n_groups consecutive heads.  (Dao and Gu, arXiv 2405.21060;
 * transformers' modeling_granitemoehybrid.py.) */
#pragma once

#include "ptq/arch/config.h"
#include "ptq/base/context.h"

/* Tokens of a chunk: as many as a head has channels in the published models, so that products over the tokens of a
 * chunk cost about as much as those with S. */
#define CALM_MAMBA_CHUNK ((size_t)64)

/* Inputs of the scan over one window.  Rows of x, B and C are `stride` apart: they are columns of the convolution's
 * output. */
typedef struct calm_mamba_rows {
    const float *x;                /* [T, n_heads head_dim]              */
    const float *b, *c;            /* [T, n_groups state_dim]            */
    size_t stride, n_tokens;
    const float *step, *decay;     /* [T, n_heads]: step_t >= 0, decay_t <= 0 */
    const float *skip;             /* [n_heads]: D                       */
} calm_mamba_rows;

/* Computes step = softplus(raw + dt_bias), clamped to the limits, and decay = -exp(a_log) step; step and decay are
 * [T, n_heads], rows of `raw` [T, n_heads] are `stride` apart. */
void calm_mamba_steps(calm_ctx *ctx, size_t n_tokens, size_t n_heads, const float *raw, size_t stride,
                      const float *a_log, const float *dt_bias, calm_mamba_limits limits, float *step,
                      float *decay);

/* Runs the scan in chunks of `chunk` >= 1 tokens, in parallel over heads.  CALM_ENOMEM.
 *   out     [T, n_heads head_dim]
 *   norms   [T, n_heads] the Frobenius norm of each S after each token; or NULL
 *   states  [chunks, n_heads, state_dim, head_dim] each S before each chunk; or NULL
 *   memory  [n_heads, state_dim, head_dim] each S before the first token, replaced by that after the last; NULL: zeros,
 *           and the last S is not kept
 * The size of a chunk, and splitting a window, only change the rounding. */
calm_status calm_mamba_scan(calm_ctx *ctx, const calm_mamba_shape *shape, const calm_mamba_rows *rows, size_t chunk,
                            float *out, float *norms, float *states, float *memory);

/* Returns the number of elements of `memory`. */
size_t calm_mamba_memory(const calm_mamba_shape *shape);

/* Returns the number of elements of `states`. */
size_t calm_mamba_states(const calm_mamba_shape *shape, size_t n_tokens, size_t chunk);

/* Return the bytes of ctx->scratch of the scan, and those of each thread in addition, without `memory`. */
size_t calm_mamba_scan_bytes(const calm_mamba_shape *shape, size_t n_tokens, size_t chunk);
size_t calm_mamba_head_bytes(const calm_mamba_shape *shape, size_t n_tokens, size_t chunk);

/* Computes y = RMSNorm(y silu(z)) w over groups of channels, in place over y [T, n_heads head_dim]; rows of z are
 * `stride` apart and are overwritten; w [n_heads head_dim]. */
void calm_mamba_norm(calm_ctx *ctx, const calm_mamba_shape *shape, size_t n_tokens, const float *w, float eps,
                     float *z, size_t stride, float *y);
