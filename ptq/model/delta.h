/* The gated delta rule: a memory S [d_k, d_v] per value head that fades, and learns at each token.
 *
 *   S~ = exp(g_t) S;   u_t = beta_t (v_t - S~^T k_t);   S = S~ + k_t u_t^T;   o_t = S^T q_t / sqrt(d_k)
 *
 * q and k have length 1: x / sqrt(sum x^2 + 1e-6).  A key head serves n_value_heads / n_key_heads consecutive value
 * heads.  (Yang et al., Gated Delta Networks, arXiv 2412.06464; transformers' modeling_qwen3_next.py.) */
#pragma once

#include "ptq/base/context.h"

/* Tokens that calm takes at once: as many as there are channels in half a key, so that the products over the tokens
 * of a chunk cost about what those with S do. */
#define CALM_DELTA_CHUNK ((size_t)64)

typedef struct calm_delta_shape {
    size_t n_key_heads, n_value_heads;     /* the second a multiple of the first */
    size_t key_dim, value_dim;             /* d_k, d_v: of a head                */
} calm_delta_shape;

/* One window.  Rows of q, k and v are `stride` apart: columns of one matrix, as the convolution leaves them. */
typedef struct calm_delta_rows {
    const float *q, *k;          /* [T, n_key_heads d_k], not yet of length 1 */
    const float *v;              /* [T, n_value_heads d_v]                    */
    size_t stride, n_tokens;
    const float *decay, *beta;   /* [T, n_value_heads]: g_t <= 0, beta_t      */
} calm_delta_rows;

/* decay = -exp(a_log) softplus(decay + dt_bias) and beta = sigmoid(beta), in place over [T, n_heads]. */
void calm_delta_gates(calm_ctx *ctx, size_t n_tokens, size_t n_heads, const float *a_log, const float *dt_bias,
                      float *decay, float *beta);

/* out [T, n_value_heads d_v]; norms [T, n_value_heads] the Frobenius norm of each S after each token, or NULL; states
 * [calm_delta_states] each S before each chunk, or NULL; memory [n_value_heads, d_k, d_v] each S before the first
 * token, which becomes that behind the last, or NULL: zeros, and it is not kept.  `chunk` tokens at once, >= 1, which
 * changes the rounding alone, as it does where a window is cut.  Parallel over key heads.  CALM_ENOMEM. */
calm_status calm_delta_rule(calm_ctx *ctx, const calm_delta_shape *shape, const calm_delta_rows *rows, size_t chunk,
                            float *out, float *norms, float *states, float *memory);

/* Elements of `memory`. */
size_t calm_delta_memory(const calm_delta_shape *shape);

/* Elements of `states`. */
size_t calm_delta_states(const calm_delta_shape *shape, size_t n_tokens, size_t chunk);

/* What each thread holds of its scratch meanwhile, without `memory`. */
size_t calm_delta_rule_bytes(const calm_delta_shape *shape, size_t n_tokens, size_t chunk);

/* z = RMSNorm(o) w silu(z) over heads of d_v, in place over [T, n_value_heads d_v]; o is overwritten; w [d_v]. */
void calm_delta_norm(calm_ctx *ctx, const calm_delta_shape *shape, size_t n_tokens, const float *w, float eps,
                     float *o, float *z);
