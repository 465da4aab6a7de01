/* Estimates a run on several ranks (ptq/forecast/forecast.h) and simulates it (ptq/forecast/replay.h). */
#include "cli/bench_cluster.h"

#include <math.h>
#include <stdio.h>

#include "cli/print.h"
#include "cli/stages.h"
#include "ptq/recipe/resolve.h"
#include "ptq/state/environment.h"
#include "ptq/forecast/forecast.h"

/* A number of ranks, and the forecast for it. */
typedef struct trial {
    int ranks;
    calm_replay found;
    double efficiency;    /* one rank's time over ranks x time */
    size_t memory;        /* bytes per rank                    */
} trial;

/* ---- what is asked ---- */

static calm_status check(calm_ctx *ctx, const calm_bench_cluster *asked)
{
    bool divides = !asked->ranks.n;
    for (size_t i = 0; i < asked->ranks.n; i++) {
        const double n = asked->ranks.of[i];
        if (n != floor(n))
            return calm_fail(ctx, CALM_EARG, "calm bench cluster: --ranks %g: expected whole numbers", n);
        divides |= n > 1;
    }
    if (divides && asked->bandwidth <= 0)
        return calm_fail(ctx, CALM_EARG, "calm bench cluster: --bandwidth is missing: Gbit/s between the machines, 10 "
                                         "or 100 for instance");
    return CALM_OK;
}

static calm_status list_trials(calm_ctx *ctx, const calm_bench_cluster *asked, trial **out, size_t *n)
{
    *n = asked->ranks.n ? asked->ranks.n : 9;
    CALM_TRY(CALM_NEW(ctx, ctx->out, *out, *n));
    for (size_t i = 0; i < *n; i++)
        (*out)[i].ranks = asked->ranks.n ? (int)asked->ranks.of[i] : 1 << i;
    return CALM_OK;
}

/* ---- replays ---- */

static calm_replay_cluster cluster_of(const calm_ctx *ctx, const calm_bench_cluster *asked, int ranks)
{
    const int per_node = ranks < asked->per_node ? ranks : (int)asked->per_node;
    return (calm_replay_cluster){.ranks = ranks, .per_node = per_node, .threads = ctx->n_threads,
                                 .cores = asked->cores ? (int)asked->cores : (int)asked->per_node * ctx->n_threads,
                                 .bandwidth = asked->bandwidth * 1e9 / 8, .latency = asked->latency * 1e-6};
}

/* Scales the costs so that the run takes `seconds` on one rank, as measured, instead of the estimate. */
static calm_status calibrate(calm_ctx *ctx, double seconds, double alone, calm_replay_costs *costs)
{
    const double factor = seconds / alone;
    calm_replay_block *blocks;
    CALM_TRY(CALM_NEW(ctx, ctx->out, blocks, costs->n_blocks));
    for (size_t b = 0; b < costs->n_blocks; b++) {
        blocks[b] = costs->blocks[b];
        blocks[b].pass *= factor;
        blocks[b].work *= factor;
    }
    costs->blocks = blocks;
    costs->begin *= factor;
    costs->look *= factor;
    costs->guard.seconds *= factor;
    costs->test.seconds *= factor;
    costs->alone *= factor;
    costs->passes *= factor;
    return CALM_OK;
}

static calm_status replay_all(calm_ctx *ctx, const calm_bench_cluster *asked, calm_forecast *f, trial *trials, size_t n)
{
    const calm_replay_cluster one = cluster_of(ctx, asked, 1);
    calm_replay alone;
    CALM_TRY(calm_replay_run(ctx, &f->costs, &one, &alone));
    if (asked->seconds > 0) {
        CALM_TRY(calibrate(ctx, asked->seconds, alone.seconds, &f->costs));
        CALM_TRY(calm_replay_run(ctx, &f->costs, &one, &alone));
    }
    for (size_t i = 0; i < n; i++) {
        trial *t = &trials[i];
        const calm_replay_cluster cluster = cluster_of(ctx, asked, t->ranks);
        CALM_TRY(calm_replay_run(ctx, &f->costs, &cluster, &t->found));
        t->efficiency = alone.seconds / (t->ranks * t->found.seconds);
        t->memory = (t->ranks > 1 ? &f->divided : &f->memory)->peak;
    }
    return CALM_OK;
}

/* ---- printing ---- */

static calm_json *trial_json(const trial *t)
{
    return CALM_OBJECT(CALM_KV("ranks", (int64_t)t->ranks), CALM_KV("seconds", t->found.seconds),
                       CALM_KV("efficiency", t->efficiency), CALM_KV("blocks_seconds", t->found.blocks_seconds),
                       CALM_KV("idle_share", t->found.idle),
                       CALM_KV("work_seconds", t->found.work), CALM_KV("most_work_seconds", t->found.most_work),
                       CALM_KV("memory_bytes", t->memory),
                       CALM_KV("rows_bytes", (int64_t)t->found.rows_bytes),
                       CALM_KV("candidate_bytes", (int64_t)t->found.blobs_bytes),
                       CALM_KV("unused_ranks", t->found.unused));
}

static calm_status print_json(calm_ctx *ctx, const calm_bench_cluster *asked, const calm_recipe *recipe,
                              const calm_forecast *f, const trial *trials, size_t n)
{
    const calm_replay_cluster most = cluster_of(ctx, asked, CALM_BENCH_RANKS_MOST);
    const calm_replay_costs *costs = &f->costs;
    calm_json *environment, *rows = calm_json_new_array();
    double blocks = 0;
    for (size_t i = 0; i < n; i++)
        calm_json_add(rows, trial_json(&trials[i]));
    for (size_t b = 0; b < costs->n_blocks; b++)
        blocks += costs->blocks[b].pass + costs->blocks[b].work;
    CALM_TRY(calm_environment_json(ctx, &environment));
    calm_json *steps = CALM_OBJECT(CALM_KV("begin", costs->begin), CALM_KV("blocks", blocks),
                                   CALM_KV("guard", costs->guard.seconds), CALM_KV("test", costs->test.seconds),
                                   CALM_KV("alone", costs->alone), CALM_KV("passes", costs->passes));
    return calm_print_json(ctx, CALM_OBJECT(
        CALM_KV("subject", "cluster"), CALM_KV("model", recipe->model.dir), CALM_KV("blocks", costs->n_blocks),
        CALM_KV("windows", costs->windows), CALM_KV("threads", (int64_t)ctx->n_threads),
        CALM_KV("ranks_per_node", asked->per_node), CALM_KV("cores_per_node", (int64_t)most.cores),
        CALM_KV("bandwidth_gbit", asked->bandwidth > 0 ? calm_json_of_number(asked->bandwidth) : NULL),
        CALM_KV("latency_us", asked->latency), CALM_KV("sgemm_gflops", f->sgemm_flops * 1e-9),
        CALM_KV("steps_seconds", steps), CALM_KV("stages", calm_stages_json(ctx, NULL, f)),
        CALM_KV("runs", rows), CALM_KV("environment", environment)));
}

/* Adds a time in seconds, minutes or hours. */
static void add_time(calm_table *table, double seconds)
{
    if (seconds < 300)
        calm_table_format(table, "%.1f s", seconds);
    else if (seconds < 7200)
        calm_table_format(table, "%.1f min", seconds / 60);
    else
        calm_table_format(table, "%.1f h", seconds / 3600);
}

static calm_status print_text(calm_ctx *ctx, const calm_bench_cluster *asked, const calm_forecast *f,
                              const trial *trials, size_t n)
{
    const calm_replay_cluster most = cluster_of(ctx, asked, CALM_BENCH_RANKS_MOST);
    const calm_replay_costs *costs = &f->costs;
    size_t unused = 0, least = 0;
    CALM_SCOPED_TABLE(table);
    calm_table_columns(&table, "#ranks|#time|#efficiency|#idle|#memory per rank|#rows on the wire|#candidates");
    for (size_t i = 0; i < n; i++) {
        const trial *t = &trials[i];
        calm_table_format(&table, "%d", t->ranks);
        add_time(&table, t->found.seconds);
        calm_table_format(&table, "%.0f %%", 100 * t->efficiency);
        calm_table_format(&table, "%.0f %%", 100 * t->found.idle);
        calm_table_format(&table, "%.2f GB", (double)t->memory / 1e9);
        calm_table_format(&table, "%.2f GB", t->found.rows_bytes / 1e9);
        calm_table_format(&table, "%.2f GB", t->found.blobs_bytes / 1e9);
        if (t->found.unused && (!least || t->ranks < trials[least - 1].ranks)) {
            least = i + 1;
            unused = t->found.unused;
        }
    }
    CALM_TRY(calm_print_table(ctx, &table, stdout));
    printf("%zu blocks, %zu calibration windows; a rank has %d threads (%.0f GFLOP/s in float), a machine %lld rank%s "
           "and %d cores", costs->n_blocks, costs->windows, ctx->n_threads, f->sgemm_flops / 1e9, asked->per_node,
           asked->per_node == 1 ? "" : "s", most.cores);
    if (asked->bandwidth > 0)
        printf("; %g Gbit/s, %g us between machines", asked->bandwidth, asked->latency);
    printf("\n");
    if (!costs->divides)
        printf("--prefix is not float: rank 0 computes all blocks, the others wait for it\n");
    else if (least)
        printf("with %d ranks, %zu have no block to compute; with more ranks, more\n", trials[least - 1].ranks, unused);
    return CALM_OK;
}

calm_status calm_bench_cluster_run(calm_ctx *ctx, const calm_bench_cluster *asked)
{
    calm_recipe recipe;
    calm_forecast forecast;
    trial *trials;
    size_t n;
    CALM_TRY(check(ctx, asked));
    CALM_TRY(list_trials(ctx, asked, &trials, &n));
    CALM_TRY(calm_recipe_resolve(ctx, asked->spec, &(calm_events){0}, &recipe));
    const calm_forecast_machine elsewhere = {.sgemm_flops = asked->rate * 1e9};
    CALM_SCOPED_SILENCE(ctx);    /* warnings and notes belong to a real run */
    CALM_TRY(calm_forecast_make(ctx, &recipe, &elsewhere, NULL, &forecast));
    CALM_TRY(replay_all(ctx, asked, &forecast, trials, n));
    return asked->json ? print_json(ctx, asked, &recipe, &forecast, trials, n)
                       : print_text(ctx, asked, &forecast, trials, n);
}
