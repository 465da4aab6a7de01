/* Sums over the rows of an input, per channel. */
#pragma once

#include "ptq/base/context.h"

/* Per-channel sums of one input, [width] each. */
typedef struct calm_channel_sums {
    float *absmax;
    double *sum, *sumsq, *sumabs;
} calm_channel_sums;

/* Allocates sums of zero in `arena`. */
calm_status calm_channel_sums_new(calm_ctx *ctx, calm_arena *arena, size_t width, calm_channel_sums *sums);

/* Returns the bytes that calm_channel_sums_new allocates. */
size_t calm_channel_sums_bytes(size_t width);

/* Adds the rows x [n, width], times weight [n] (NULL: 1); absmax uses the unweighted rows.  Each channel is summed in
 * row order, whatever the number of threads. */
void calm_channel_sums_add(calm_ctx *ctx, const float *x, size_t n, size_t width, const float *weight,
                           calm_channel_sums *sums);
