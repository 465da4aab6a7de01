/* Measurements of calm bench: times items in turn (timing.h) and prints their times. */
#pragma once

#include "cli/timing.h"
#include "ptq/base/context.h"
#include "ptq/io/json.h"

/* One function to time. */
typedef struct calm_bench_item {
    const char *name;
    double flops;    /* floating-point operations of one run */
    calm_status (*run)(calm_ctx *ctx, void *user);
    void (*prepare)(void *user);    /* before each run, not timed; NULL: nothing */
    void *user;
    calm_timing timing;
} calm_bench_item;

/* Runs each of items [n] once to warm up, then all in turn, so that the machine's noise hits all alike, `asked` times
 * (at least CALM_BENCH_RUNS) or until calm_timing_is_enough, and fills in their timings. */
calm_status calm_bench_measure(calm_ctx *ctx, calm_bench_item *items, size_t n, size_t asked);

/* Returns the median seconds; NAN if the runs do not agree (CALM_BENCH_SPREAD_MAX). */
double calm_bench_seconds(const calm_bench_item *item);

/* Returns item->flops / calm_bench_seconds(item). */
double calm_bench_rate(const calm_bench_item *item);

/* Returns an item that runs at the peak rate of this machine on the threads of ctx: in single precision with
 * ctx->operands, or in double precision, which has half the lanes. */
calm_bench_item calm_bench_peak(const calm_ctx *ctx, bool is_double);

/* Prints a line for the item: its rate, and its shares of the rates of `sgemm` and `peak` unless these are NULL; or why
 * there is no figure. */
void calm_bench_print(const calm_bench_item *item, const calm_bench_item *sgemm, const calm_bench_item *peak);

/* Prints ", 0.87 of NAME", the item's rate over that of `whole`; nothing if `whole` is NULL or a rate is unknown. */
void calm_bench_print_part(const calm_bench_item *item, const calm_bench_item *whole, const char *name);

/* Prints a line with program, libraries and CPU. */
calm_status calm_bench_print_machine(calm_ctx *ctx);

/* Returns {name: spread} for all items; the caller frees it. */
calm_json *calm_bench_spreads(const calm_bench_item *items, size_t n);
