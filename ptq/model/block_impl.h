/* The steps of an MLP, for its two directions.  Only block*.c and mlp_back.c include it. */
#ifndef CALM_MODEL_BLOCK_IMPL_H
#define CALM_MODEL_BLOCK_IMPL_H

#include "ptq/model/block.h"

/* a [n, M] what the activation function reads and b [n, M] what its result is multiplied by, NULL without a gate; both
 * in ctx->scratch. */
calm_status calm_mlp_project(calm_ctx *ctx, const calm_weight *weight, const float *h, size_t n, calm_apply_fn *apply,
                             float **a, float **b);

/* a [n] = activation(a) b, the input of down; b NULL: without a gate. */
void calm_mlp_combine(const calm_config *config, size_t n, float *a, const float *b);

#endif
