/* The gated delta rule: each value head has a state S [d_k, d_v], which decays, and which each token corrects.
 *
 *   S~ = exp(g_t) S;   u_t = beta_t (v_t - S~^T k_t);   S = S~ + k_t u_t^T;   o_t = S^T q_t / sqrt(d_k)
 *
 * q and k are normalised to length 1: x / sqrt(sum x^2 + 1e-6).  A key head serves n_value_heads / n_key_heads
 * consecutive value heads.  (Yang et al., Gated Delta Networks, arXiv 2412.06464; transformers'
 * modeling_qwen3_next.py.) */
#pragma once

#include "ptq/arch/config.h"
#include "ptq/base/context.h"

/* Tokens of a chunk: half the channels of a key in the published models, so that products over the tokens of a chunk
 * cost about as much as those with S. */
#define CALM_DELTA_CHUNK ((size_t)64)

/* Inputs of the rule over one window.  Rows of q, k and v are `stride` apart: they are columns of the convolution's
 * output. */
typedef struct calm_delta_rows {
    const float *q, *k;          /* [T, n_key_heads d_k], not normalised      */
    const float *v;              /* [T, n_value_heads d_v]                    */
    size_t stride, n_tokens;
    const float *decay, *beta;   /* [T, n_value_heads]: g_t <= 0, beta_t      */
} calm_delta_rows;

/* Computes decay = -exp(a_log) softplus(decay + dt_bias) and beta = sigmoid(beta), in place over [T, n_heads]. */
void calm_delta_gates(calm_ctx *ctx, size_t n_tokens, size_t n_heads, const float *a_log, const float *dt_bias,
                      float *decay, float *beta);

/* Runs the rule in chunks of `chunk` >= 1 tokens, in parallel over key heads.  CALM_ENOMEM.
 *   out     [T, n_value_heads d_v]
 *   norms   [T, n_value_heads] the Frobenius norm of each S after each token; or NULL
 *   states  [calm_delta_states] each S before each chunk; or NULL
 *   memory  [n_value_heads, d_k, d_v] each S before the first token, replaced by that after the last; NULL: zeros, and
 *           the last S is not kept
 * The size of a chunk, and splitting a window, only change the rounding. */
calm_status calm_delta_rule(calm_ctx *ctx, const calm_delta_shape *shape, const calm_delta_rows *rows, size_t chunk,
                            float *out, float *norms, float *states, float *memory);

/* Returns the number of elements of `memory`. */
size_t calm_delta_memory(const calm_delta_shape *shape);

/* Returns the number of elements of `states`. */
size_t calm_delta_states(const calm_delta_shape *shape, size_t n_tokens, size_t chunk);

/* Returns the bytes of scratch of each thread meanwhile, without `memory`. */
size_t calm_delta_rule_bytes(const calm_delta_shape *shape, size_t n_tokens, size_t chunk);

/* Computes z = RMSNorm(o) w silu(z) over heads of d_v, in place over z [T, n_value_heads d_v]; o is overwritten;
 * w [d_v]. */
void calm_delta_norm(calm_ctx *ctx, const calm_delta_shape *shape, size_t n_tokens, const float *w, float eps,
                     float *o, float *z);
