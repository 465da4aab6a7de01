/* Rotary position embedding (RoPE): tables of cos and sin, and the rotation.
 *
 *   r rotary channels of a head; channel c < r/2 is paired with c + r/2, channels from r on are unchanged
 *   (a, b) -> (a cos - b sin, b cos + a sin), angle = position f_c, cos and sin both times m
 *
 *   default   f_c = theta^(-2c/r)                        linear   f_c / factor
 *   dynamic   theta (factor T / P - (factor - 1))^(r / (r - 2)) for theta, once T exceeds P = max_position_embeddings
 *   llama3    wavelength l = 2 pi / f, o = original positions: l > o / low: f / factor; l < o / high: f; between
 *             (1 - s) f / factor + s f, s = (o / l - low) / (high - low)
 *   yarn      d(n) = r ln(o / (2 pi n)) / (2 ln theta), lo = max(floor d(beta_fast), 0),
 *             hi = min(ceil d(beta_slow), r - 1), g_c = clip((c - lo) / (hi - lo), 0, 1),
 *             f_c (1 - g_c) + f_c g_c / factor                                                (arXiv 2309.00071)
 *   longrope  f_c / long_factor[c] when T > o, for every position, else f_c / short_factor[c]    (arXiv 2402.13753)
 *   proportional  f_c / factor for c < floor(share r / 2), 0 for the others
 *
 * T is one more than the window's last position.  Frequencies and angles are float32, as in transformers. */
#pragma once

#include "ptq/arch/config.h"

/* cos and sin for positions 0 .. n_positions - 1, [n_positions, half]. */
typedef struct calm_rope_table {
    size_t n_positions, half;    /* half = r / 2 */
    const float *cos, *sin;
    bool neighbours;             /* channel 2 c is paired with 2 c + 1; else c with c + half */
} calm_rope_table;

/* All tables of a model; read-only, shared by all threads. */
typedef struct calm_rope {
    size_t n_positions;
    calm_rope_table table[CALM_N_ROPES][2];    /* for windows up to the original length, and (longrope) beyond it */
} calm_rope;

/* Computes the tables for positions 0 .. n_positions - 1 in ctx->out. */
calm_status calm_rope_init(calm_ctx *ctx, const calm_config *config, size_t n_positions, calm_rope *out);

/* Returns the bytes that this allocates in ctx->out. */
size_t calm_rope_bytes(const calm_config *config, size_t n_positions);

/* Finds the table for a block and a window of length T (one more than its last position).  Dynamic tables beyond the
 * trained length are computed in ctx->scratch.  CALM_EARG: positions beyond n_positions. */
calm_status calm_rope_find(calm_ctx *ctx, const calm_rope *rope, const calm_config *config, size_t block, size_t length,
                           calm_rope_table *out);

/* Does the rotation of the first `before` tokens differ between a window of length `before` and one of `length`? */
bool calm_rope_differs(const calm_config *config, size_t before, size_t length);

/* Returns the bytes of ctx->scratch that calm_rope_find takes for a window of length T; the maximum over blocks. */
size_t calm_rope_scratch_bytes(const calm_config *config, size_t length);

/* Rotates the heads of x [T, n_heads * head_dim] (row stride `stride`); `positions` [T] or NULL = 0, 1, ... */
void calm_rope_rotate(const calm_rope_table *table, float *x, size_t stride, size_t n_tokens, size_t n_heads,
                      size_t head_dim, const uint32_t *positions);

/* Backward: turns the gradient of the rotated heads into that of the unrotated ones, in place, by the transposed
 * rotation. */
void calm_rope_rotate_back(const calm_rope_table *table, float *dx, size_t stride, size_t n_tokens, size_t n_heads,
                           size_t head_dim, const uint32_t *positions);
