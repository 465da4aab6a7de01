/* The steps of a block, for its two directions.  Only block*.c and mlp_back.c include it. */
#pragma once

#include "ptq/model/block.h"

/* y [n, D] times the family's residual_scale, on ctx's threads. */
void calm_block_scale(calm_ctx *ctx, const calm_config *config, size_t n, float *y);

/* y [n, width] += x, on ctx's threads. */
void calm_block_rows_add(calm_ctx *ctx, size_t n, size_t width, const float *x, float *y);

/* a [n, M] what the activation function reads and b [n, M] what its result is multiplied by, NULL without a gate; both
 * in ctx->scratch. */
calm_status calm_mlp_project(calm_ctx *ctx, const calm_config *config, const calm_weight *weight, const float *h,
                             size_t n, calm_apply_fn *apply, float **a, float **b);

/* a [n] = activation(a) b, the input of down; b NULL: without a gate. */
void calm_mlp_combine(const calm_config *config, size_t n, float *a, const float *b);

/* g [n, M] in place: what the reader does to down's input beforehand (config.down_hadamard), or nothing.  It is its own
 * transpose, so the way back is the same.  Of ctx->scratch it takes calm_mlp_transform_bytes. */
calm_status calm_mlp_transform(calm_ctx *ctx, const calm_config *config, size_t n, size_t inner, float *g);
size_t calm_mlp_transform_bytes(const calm_config *config, size_t inner);
