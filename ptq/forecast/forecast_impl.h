/* Measures on a block of the model how fast this machine computes a step of learning. */
#pragma once

#include "ptq/state/state.h"

/* All with the threads of the context. */
typedef struct calm_learn_rates {
    double forward;    /* operations per second of the forward pass of one window                     */
    double back;       /* the same of forward and backward pass                                       */
    double update;     /* seconds to change a weight and decode it anew                               */
} calm_learn_rates;

/* Seconds that n_threads threads have computed: calm_time_busy, or what a test says. */
typedef double calm_busy_clock(int n_threads);

/* Measure them by `clock`: passes on the first block of an open run, over the windows of one step cut to what takes
 * about a second, updates on a small linear of its first scheme.  Leaves *out as it is where that block is a mixture,
 * whose experts would have to be read first, or takes gigabytes, and updates where the scheme has nothing to learn.
 * Fails as reading the block does. */
calm_status calm_learn_rates_measure(calm_ctx *ctx, const calm_run *run, calm_busy_clock *clock, calm_learn_rates *out);

/* Seconds in which the threads of the context look at one activation: its statistics, and its channel's sums.
 * CALM_ENOMEM. */
calm_status calm_rates_value_seconds(calm_ctx *ctx, double *out);

/* Operations per second of products in float, of other operands and in double, by the threads of the context; each is
 * measured for `seconds`; NULL: not wanted.  CALM_ENOMEM. */
calm_status calm_rates_products(calm_ctx *ctx, double seconds, double *in_float, calm_operands operands,
                                double *of_operands, double *in_double);
