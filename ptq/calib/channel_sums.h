/* Sums over the rows of an input, channel by channel. */
#pragma once

#include "ptq/base/context.h"

/* Per-channel sums of one input, [width] each. */
typedef struct calm_channel_sums {
    float *absmax;
    double *sum, *sumsq, *sumabs;
} calm_channel_sums;

/* Zeros, in `arena`. */
calm_status calm_channel_sums_new(calm_ctx *ctx, calm_arena *arena, size_t width, calm_channel_sums *sums);

/* What that takes. */
size_t calm_channel_sums_bytes(size_t width);

/* Add the rows x [n, width], times weight [n] unless that is NULL; absmax is of the rows as they are.  Each channel
 * adds in the order of rows, whatever the number of threads. */
void calm_channel_sums_add(calm_ctx *ctx, const float *x, size_t n, size_t width, const float *weight,
                           calm_channel_sums *sums);
