/* Steps of a block that its forward and backward pass share.  Only block*.c and mlp_back.c include it. */
#pragma once

#include "ptq/layers/block.h"

/* Multiplies y [n, D] by the family's residual_scale, on ctx's threads. */
void calm_block_scale(calm_ctx *ctx, const calm_config *config, size_t n, float *y);

/* Applies the online transform (hadamard.h) of a sublayer's input h [n, D] in place; the backward pass applies it to
 * the gradient. */
calm_status calm_block_transform(calm_ctx *ctx, const calm_config *config, calm_sublayer sublayer, size_t n, float *h);

/* Returns the bytes of ctx->scratch that this takes. */
size_t calm_block_transform_bytes(const calm_config *config, calm_sublayer sublayer);

/* Adds x to y [n, width], on ctx's threads. */
void calm_block_rows_add(calm_ctx *ctx, size_t n, size_t width, const float *x, float *y);

/* Computes from h [n, D] the input of the activation function, a [n, M], and the factor of its output, b [n, M], NULL
 * without a gate; both in ctx->scratch. */
calm_status calm_mlp_project(calm_ctx *ctx, const calm_config *config, const calm_weight *weight, const float *h,
                             size_t n, calm_apply_fn *apply, float **a, float **b);

/* Computes a [n] = activation(a) b in place, the input of down; b NULL: without a gate. */
void calm_mlp_combine(const calm_config *config, size_t n, float *a, const float *b);
