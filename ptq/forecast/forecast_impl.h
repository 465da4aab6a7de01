/* Measures how fast this machine computes a step of learning, on a block of the model. */
#pragma once

#include "ptq/state/state.h"

/* Speeds with all threads of the context. */
typedef struct calm_learn_rates {
    double forward;    /* operations per second of the forward pass of one window                     */
    double back;       /* operations per second of its forward and backward pass */
    double update;     /* seconds to update a weight and dequantize it again */
} calm_learn_rates;

/* Returns the seconds that n_threads threads have computed: calm_time_busy, or a test's clock. */
typedef double calm_busy_clock(int n_threads);

/* Measures the speeds by `clock`: passes through the first block of an open run, over the windows of one step, cut to
 * about a second; updates on a small linear of its first scheme.  Leaves *out unchanged if the block is a mixture,
 * whose experts would have to be read first, or needs gigabytes; leaves `update` unchanged if the scheme has nothing to
 * learn.  Fails as reading the block does. */
calm_status calm_learn_rates_measure(calm_ctx *ctx, const calm_run *run, calm_busy_clock *clock, calm_learn_rates *out);

/* Measures the seconds in which all threads process one activation: its statistics and channel sums.  CALM_ENOMEM. */
calm_status calm_rates_value_seconds(calm_ctx *ctx, double *out);

/* Measures the operations per second of products in float, with other operands, and in double, by all threads of the
 * context, each for `seconds`; NULL: not measured.  CALM_ENOMEM. */
calm_status calm_rates_products(calm_ctx *ctx, double seconds, double *in_float, calm_operands operands,
                                double *of_operands, double *in_double);
