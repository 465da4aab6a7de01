/* calm bench cluster: how long a run would take on 1, 2, 4, ... ranks. */
#pragma once

#include "ptq/recipe/spec.h"
#include "ptq/base/context.h"

/* Ranks of a replay, at most. */
#define CALM_BENCH_RANKS_MOST 4096

/* What is asked for; 0: not given. */
typedef struct calm_bench_cluster {
    const calm_recipe_spec *spec;
    calm_numbers ranks;                /* none: 1, 2, 4, ... 256                              */
    double bandwidth, latency;         /* Gbit/s each way, microseconds; between machines     */
    long long per_node, cores;         /* ranks on a machine; its cores (0: ranks x threads)  */
    double rate;                       /* GFLOP/s of sgemm on a rank's threads; 0: measured   */
    double seconds;                    /* that the run took on one rank; 0: as estimated       */
    bool json;
} calm_bench_cluster;

/* Estimate the run on ctx->n_threads threads a rank, replay it, and print time, efficiency, idle share, memory and
 * bytes for each number of ranks, as a table or as JSON.  Of the model only names, types and shapes of the tensors
 * are read. CALM_EARG: several ranks without a bandwidth, or a part of one.  Fails as calm_forecast_make does. */
calm_status calm_bench_cluster_run(calm_ctx *ctx, const calm_bench_cluster *asked);
