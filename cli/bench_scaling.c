/* Fits the serial share of some work to its times on 1, 2, 4, ... threads. */
#include "cli/bench_scaling.h"

#include <math.h>
#include <stdio.h>

#include "cli/print.h"
#include "ptq/state/environment.h"

/* The work on a number of threads. */
typedef struct trial {
    const calm_bench_item *work;
    int threads;
    char name[24];
} trial;

static calm_status run_trial(calm_ctx *ctx, void *user)
{
    const trial *of = user;
    const int all = ctx->n_threads;
    ctx->n_threads = of->threads;
    const calm_status status = of->work->run(ctx, of->work->user);
    ctx->n_threads = all;
    return status;
}

/* 1, 2, 4, ... and `most`. */
static size_t list_trials(const calm_bench_item *work, int most, trial *trials, calm_bench_item *items)
{
    size_t n = 0;
    for (int threads = 1; n < CALM_BENCH_SCALING_MOST; threads = threads > most / 2 ? most : 2 * threads) {
        trials[n] = (trial){.work = work, .threads = threads};
        snprintf(trials[n].name, sizeof trials[n].name, "%d thread%s", threads, threads == 1 ? "" : "s");
        items[n] = (calm_bench_item){
            .name = trials[n].name, .flops = work->flops, .run = run_trial, .user = &trials[n]};
        n++;
        if (threads >= most)
            break;
    }
    return n;
}

/* items [n + 1]: the last one is the machine's peak on all threads. */
static calm_status print_json(calm_ctx *ctx, const char *what, const trial *trials, const calm_bench_item *items,
                              const double *seconds, size_t n, double share)
{
    calm_json *environment, *rows = calm_json_new_array();
    const double peak = calm_bench_rate(&items[n]);
    for (size_t i = 0; i < n; i++)
        calm_json_add(rows, CALM_OBJECT(CALM_KV("threads", (int64_t)trials[i].threads), CALM_KV("seconds", seconds[i]),
                                        CALM_KV("speedup", seconds[0] / seconds[i]),
                                        CALM_KV("spread", items[i].timing.spread),
                                        CALM_KV("share_of_peak", calm_bench_rate(&items[i]) / peak)));
    CALM_TRY(calm_environment_json(ctx, &environment));
    return calm_print_json(ctx, CALM_OBJECT(CALM_KV("subject", "scaling"), CALM_KV("work", what),
                                            CALM_KV("times", rows), CALM_KV("peak_gflops", peak * 1e-9),
                                            CALM_KV("serial_share", share),
                                            CALM_KV("runs", items[0].timing.n), CALM_KV("environment", environment)));
}

static calm_status print_table(calm_ctx *ctx, const char *what, const calm_bench_item *items, const double *seconds,
                               size_t n, double share)
{
    printf("%s: median of %zu runs\n", what, items[0].timing.n);
    for (size_t i = 0; i < n; i++) {
        if (isnan(seconds[i])) {
            calm_bench_print(&items[i], NULL, NULL);
            continue;
        }
        printf("  %-11s %8.3f s, spread %.1f %%", items[i].name, seconds[i], 100 * items[i].timing.spread);
        if (i > 0 && !isnan(seconds[0]))
            printf(", %.2f times as fast", seconds[0] / seconds[i]);
        calm_bench_print_part(&items[i], &items[n], "the machine's peak");
        printf("\n");
    }
    calm_bench_print(&items[n], NULL, NULL);
    if (n < 2)
        printf("  one thread: nothing to compare (--threads)\n");
    else if (isnan(share))
        printf("  no serial share: the runs do not agree\n");
    else
        printf("  serial share %.1f %%: 16 threads would be %.1f times as fast as one\n", 100 * share,
               1 / (fmax(share, 0) + (1 - fmax(share, 0)) / 16));
    return calm_bench_print_machine(ctx);
}

calm_status calm_bench_scaling_run(calm_ctx *ctx, const char *what, const calm_bench_item *work, size_t repeats,
                                   bool json)
{
    trial trials[CALM_BENCH_SCALING_MOST];
    calm_bench_item items[CALM_BENCH_SCALING_MOST + 1];
    int threads[CALM_BENCH_SCALING_MOST];
    double seconds[CALM_BENCH_SCALING_MOST];
    const size_t n = list_trials(work, ctx->n_threads, trials, items);
    items[n] = calm_bench_peak(ctx, false);
    CALM_TRY(calm_bench_measure(ctx, items, n + 1, repeats));
    for (size_t i = 0; i < n; i++) {
        threads[i] = trials[i].threads;
        seconds[i] = calm_bench_seconds(&items[i]);
    }
    const double share = calm_timing_serial_share(threads, seconds, n);
    return json ? print_json(ctx, what, trials, items, seconds, n, share)
                : print_table(ctx, what, items, seconds, n, share);
}
