/* calm bench scaling: the speed-up by more threads on work of a fixed size. */
#pragma once

#include "cli/bench_timing.h"

/* Numbers of threads that are tried at most: 1, 2, 4, ... and all. */
#define CALM_BENCH_SCALING_MOST 12

/* Time `work` on 1, 2, 4, ... and all threads of ctx, up to `repeats` runs each in turn, and print seconds, speed-ups
 * and the serial share, as a table or as JSON.  `what` says in words what is timed. */
calm_status calm_bench_scaling_run(calm_ctx *ctx, const char *what, const calm_bench_item *work, size_t repeats,
                                   bool json);
