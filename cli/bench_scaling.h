/* calm bench scaling: the speed-up by more threads on work of a fixed size. */
#pragma once

#include "cli/bench_timing.h"

/* Largest count of thread numbers: 1, 2, 4, ... and all threads. */
#define CALM_BENCH_SCALING_MOST 12

/* Times `work` on 1, 2, 4, ... and all threads of ctx in turn, at most `repeats` runs each, and prints seconds,
 * speed-ups and the serial share, as a table or as JSON.  `what` describes the work in words. */
calm_status calm_bench_scaling_run(calm_ctx *ctx, const char *what, const calm_bench_item *work, size_t repeats,
                                   bool json);
