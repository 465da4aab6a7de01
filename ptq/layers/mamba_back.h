/* Backward pass of Mamba-2's scan, of its time steps and of its norm. */
#pragma once

#include "ptq/layers/mamba.h"
#include "ptq/layers/norm.h"

/* Gradients of the operands of calm_mamba_scan, in the same layout: rows of x, b and c are `stride` apart.  All are
 * written, except skip [n_heads], which is added to (NULL: not wanted). */
typedef struct calm_mamba_grads {
    float *x, *b, *c;
    float *step, *decay;    /* [T, n_heads]: as of two independent operands */
    float *skip;
} calm_mamba_grads;

/* Computes the gradients from dout [T, n_heads head_dim], in parallel over the heads of a chunk.  `states`: from
 * calm_mamba_scan with the same `chunk`.  CALM_ENOMEM. */
calm_status calm_mamba_scan_back(calm_ctx *ctx, const calm_mamba_shape *shape, const calm_mamba_rows *rows,
                                 size_t chunk, const float *states, const float *dout, const calm_mamba_grads *grads);

/* Return its bytes of ctx->scratch, and those of each thread in addition. */
size_t calm_mamba_scan_back_bytes(const calm_mamba_shape *shape, size_t n_tokens, size_t chunk);
size_t calm_mamba_head_back_bytes(const calm_mamba_shape *shape, size_t n_tokens, size_t chunk);

/* Backward of calm_mamba_steps: writes draw [T, n_heads], rows `stride` apart like those of `raw`, from dstep and
 * ddecay; adds to da_log and ddt [n_heads] (NULL: not wanted).  A clamped step has no gradient. */
void calm_mamba_steps_back(size_t n_tokens, size_t n_heads, const float *raw, size_t stride, const float *a_log,
                           const float *dt_bias, calm_mamba_limits limits, const float *dstep, const float *ddecay,
                           float *draw, float *da_log, float *ddt);

/* Backward of calm_mamba_norm; y (dense) and z (rows `stride` apart) are its inputs.  Writes dz in the layout of z; dy,
 * the gradient of its output, becomes that of y; adds to dw [n_heads head_dim] (NULL: not wanted). */
calm_status calm_mamba_norm_back(calm_ctx *ctx, const calm_mamba_shape *shape, size_t n_tokens, const calm_norm *norm,
                                 const float *y, const float *z, size_t stride, float *dy, float *dw, float *dz);

/* Returns its bytes of ctx->scratch. */
size_t calm_mamba_norm_back_bytes(const calm_mamba_shape *shape, size_t n_tokens, size_t n_threads);
