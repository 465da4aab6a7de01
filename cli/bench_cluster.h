/* calm bench cluster: how long a run would take on 1, 2, 4, ... ranks. */
#pragma once

#include "ptq/recipe/spec.h"
#include "ptq/base/context.h"

/* Largest number of ranks that calm_bench_cluster_run simulates. */
#define CALM_BENCH_RANKS_MOST 4096

/* The options of the command; 0: not given. */
typedef struct calm_bench_cluster {
    const calm_recipe_spec *spec;
    calm_numbers ranks;                /* none: 1, 2, 4, ... 256                               */
    double bandwidth, latency;         /* between machines: Gbit/s each way, microseconds      */
    long long per_node, cores;         /* ranks per machine; its cores (0: ranks x threads)    */
    double rate;                       /* GFLOP/s of sgemm on a rank's threads; 0: measure it  */
    double seconds;                    /* measured time of the run on one rank; 0: estimate it */
    bool json;
} calm_bench_cluster;

/* Estimates the run with ctx->n_threads threads per rank, simulates it for each number of ranks, and prints time,
 * efficiency, idle share, memory and bytes sent, as a table or as JSON.  It reads only names, types and shapes of the
 * model's tensors.  CALM_EARG: several ranks without a bandwidth, or a number of ranks that is no integer.  Fails as
 * calm_forecast_make does. */
calm_status calm_bench_cluster_run(calm_ctx *ctx, const calm_bench_cluster *asked);
