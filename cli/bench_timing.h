/* The measurements of calm bench: items that are timed in turns (timing.h), and the output of their times. */
#pragma once

#include "cli/timing.h"
#include "ptq/base/context.h"
#include "ptq/io/json.h"

/* One thing that is timed. */
typedef struct calm_bench_item {
    const char *name;
    double flops;    /* of one run */
    calm_status (*run)(calm_ctx *ctx, void *user);
    void (*prepare)(void *user);    /* before each run, not timed; NULL: nothing */
    void *user;
    calm_timing timing;
} calm_bench_item;

/* Run each of items [n] once to warm up, then all in turn, so that they meet the same noise, `asked` times (at least
 * CALM_BENCH_RUNS) or until calm_timing_is_enough, and fill in their timings. */
calm_status calm_bench_measure(calm_ctx *ctx, calm_bench_item *items, size_t n, size_t asked);

/* Median seconds; NAN where the runs do not agree. */
double calm_bench_seconds(const calm_bench_item *item);

/* Flops per second, likewise. */
double calm_bench_rate(const calm_bench_item *item);

/* The machine's peak on the threads of ctx as an item: single precision, of ctx->operands, or double,
 * which has half the lanes. */
calm_bench_item calm_bench_peak(const calm_ctx *ctx, bool is_double);

/* Print an item as a line: its rate and, unless NULL, its parts of the rates of `sgemm` and `peak`; or that there is no
 * figure, and why. */
void calm_bench_print(const calm_bench_item *item, const calm_bench_item *sgemm, const calm_bench_item *peak);

/* Print ", 0.87 of NAME": the item's part of the rate of another, where both are known and `whole` is not NULL. */
void calm_bench_print_part(const calm_bench_item *item, const calm_bench_item *whole, const char *name);

/* Print program, libraries and CPU as a line. */
calm_status calm_bench_print_machine(calm_ctx *ctx);

/* {name: spread} of all items. */
calm_json *calm_bench_spreads(const calm_bench_item *items, size_t n);
