/* Runs, times and prints items of calm bench. */
#include "cli/bench_timing.h"

#include <math.h>
#include <stdio.h>

#include "cli/peak.h"
#include "ptq/base/scope.h"
#include "ptq/base/threads.h"
#include "ptq/state/environment.h"

/* ---- measuring ---- */

static calm_status run_once(calm_ctx *ctx, const calm_bench_item *item, double *seconds)
{
    if (item->prepare)
        item->prepare(item->user);
    const double begun = calm_seconds();
    CALM_TRY(item->run(ctx, item->user));
    *seconds = calm_seconds() - begun;
    return CALM_OK;
}

calm_status calm_bench_measure(calm_ctx *ctx, calm_bench_item *items, size_t n, size_t asked)
{
    double *seconds, warm_up;    /* [n, asked] */
    size_t runs = 0;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, seconds, n * asked));
    for (size_t i = 0; i < n; i++)
        CALM_TRY(run_once(ctx, &items[i], &warm_up));
    const double begun = calm_seconds();
    do {
        for (size_t i = 0; i < n; i++)
            CALM_TRY(run_once(ctx, &items[i], &seconds[i * asked + runs]));
        runs++;
    } while (!calm_timing_is_enough(runs, calm_seconds() - begun, asked));
    for (size_t i = 0; i < n; i++)
        items[i].timing = calm_timing_of(seconds + i * asked, runs);
    return CALM_OK;
}

double calm_bench_seconds(const calm_bench_item *item)
{
    return calm_timing_is_steady(&item->timing) ? item->timing.median : NAN;
}

double calm_bench_rate(const calm_bench_item *item)
{
    return item->flops / calm_bench_seconds(item);
}

/* ---- the machine ---- */

static calm_status peak_task(calm_ctx *ctx, size_t index, void *user)
{
    (void)index;
    (void)user;
    calm_peak_of_cpu(ctx->operands)->run();
    return CALM_OK;
}

static calm_status run_peak(calm_ctx *ctx, void *user)
{
    (void)user;
    return calm_parallel_for(ctx, (size_t)ctx->n_threads, peak_task, NULL);
}

calm_bench_item calm_bench_peak(const calm_ctx *ctx, bool is_double)
{
    const double flops = calm_peak_of_cpu(ctx->operands)->flops * (double)ctx->n_threads;
    return (calm_bench_item){.name = "peak", .flops = is_double ? flops / 2 : flops, .run = run_peak};
}

/* ---- printing ---- */

void calm_bench_print_part(const calm_bench_item *item, const calm_bench_item *whole, const char *name)
{
    if (whole && isfinite(calm_bench_rate(item) / calm_bench_rate(whole)))
        printf(", %.2f of %s", calm_bench_rate(item) / calm_bench_rate(whole), name);
}

void calm_bench_print(const calm_bench_item *item, const calm_bench_item *sgemm, const calm_bench_item *peak)
{
    if (!calm_timing_is_steady(&item->timing)) {
        printf("  %-9s no figure: the spread of %zu runs is %.0f %%, above %.0f %%\n", item->name, item->timing.n,
               100 * item->timing.spread, 100 * CALM_BENCH_SPREAD_MAX);
        return;
    }
    printf("  %-9s %8.1f Gflop/s, spread %.1f %%", item->name, calm_bench_rate(item) * 1e-9, 100 * item->timing.spread);
    calm_bench_print_part(item, peak, "the machine's peak");
    calm_bench_print_part(item, sgemm, "sgemm");
    printf("\n");
}

static const char *fact(const calm_json *facts, const char *name)
{
    return calm_json_string(calm_json_get(facts, name), "");
}

calm_status calm_bench_print_machine(calm_ctx *ctx)
{
    CALM_SCOPED_JSON(facts);
    CALM_TRY(calm_environment_json(ctx, &facts));
    printf("calm %s (%.12s), %s with %s kernels, %s, %s; peak by %s\n", CALM_VERSION, fact(facts, "commit"),
           fact(facts, "openblas"), fact(facts, "kernels"), fact(facts, "libc"), fact(facts, "cpu"),
           calm_peak_of_cpu(ctx->operands)->unit);
    return CALM_OK;
}

calm_json *calm_bench_spreads(const calm_bench_item *items, size_t n)
{
    calm_json *out = calm_json_new_object();
    for (size_t i = 0; i < n; i++)
        calm_json_set_number(out, items[i].name, items[i].timing.spread);
    return out;
}
