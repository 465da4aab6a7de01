/* Backward pass of the scan of Mamba-2, of its steps and of its norm. */
#pragma once

#include "ptq/model/mamba.h"
#include "ptq/model/norm.h"

/* Gradients of the operands of calm_mamba_scan, in its layout: those of x, B and C lie `stride` apart as the rows do.
 * All are written but skip [n_heads], which is added to (NULL: not wanted). */
typedef struct calm_mamba_grads {
    float *x, *b, *c;
    float *step, *decay;    /* [T, n_heads]: step as it is added, decay by itself */
    float *skip;
} calm_mamba_grads;

/* From dout [T, n_heads head_dim].  `states` are those that calm_mamba_scan gave for chunks of `chunk` tokens.
 * Parallel over the heads of a chunk.  CALM_ENOMEM. */
calm_status calm_mamba_scan_back(calm_ctx *ctx, const calm_mamba_shape *shape, const calm_mamba_rows *rows,
                                 size_t chunk, const float *states, const float *dout, const calm_mamba_grads *grads);

/* What it holds of ctx->scratch; and each thread besides. */
size_t calm_mamba_scan_back_bytes(const calm_mamba_shape *shape, size_t n_tokens, size_t chunk);
size_t calm_mamba_head_back_bytes(const calm_mamba_shape *shape, size_t n_tokens, size_t chunk);

/* Of calm_mamba_steps: draw [T, n_heads], rows `stride` apart as those of `raw`, written from dstep and ddecay; da_log
 * and ddt [n_heads] are added to; NULL: not wanted.  A step that a limit holds has no gradient. */
void calm_mamba_steps_back(size_t n_tokens, size_t n_heads, const float *raw, size_t stride, const float *a_log,
                           const float *dt_bias, calm_mamba_limits limits, const float *dstep, const float *ddecay,
                           float *draw, float *da_log, float *ddt);

/* Of calm_mamba_norm, y and z as it read them, y dense and rows of z `stride` apart: dz, likewise, written; dy, of its
 * output, becomes that of y; dw [n_heads head_dim] is added to; NULL: not wanted. */
calm_status calm_mamba_norm_back(calm_ctx *ctx, const calm_mamba_shape *shape, size_t n_tokens, const calm_norm *norm,
                                 const float *y, const float *z, size_t stride, float *dy, float *dw, float *dz);

/* What that holds of ctx->scratch. */
size_t calm_mamba_norm_back_bytes(const calm_mamba_shape *shape, size_t n_tokens, size_t n_threads);
