/* Forecast: memory, disk and time that a run would take, and the size of its result, without running it. */
#pragma once

#include <stdbool.h>

#include "ptq/base/context.h"
#include "ptq/state/memory_plan.h"
#include "ptq/state/result.h"

/* ---- time on several ranks (replay.c) ---- */

/* One block, in seconds of a rank that has its cores for itself. */
typedef struct calm_replay_block {
    double pass;      /* forward pass of all windows              */
    double work;      /* capture without that pass, and candidates */
    double blobs;     /* bytes of its candidates in the store     */
    bool together;    /* its forward pass needs all windows at once: a mixture */
    bool todo;        /* it has candidates                        */
    double cost;      /* calm_run_work_cost: by it blocks are dealt */
} calm_replay_block;

/* Windows that are measured in parts, by batches. */
typedef struct calm_replay_parts {
    double seconds;           /* of all of them on one rank     */
    size_t windows, batch;    /* all of them; of a whole batch  */
} calm_replay_parts;

typedef struct calm_replay_costs {
    const calm_replay_block *blocks;    /* [n_blocks] those that the run computes or passes through */
    size_t n_blocks;
    bool divides;                       /* else rank 0 computes all of them                         */
    bool flows;                         /* rows move from block to block; else no block needs another */
    size_t windows;                     /* of calibration                                           */
    double window_bytes;                /* hidden rows of one                                       */
    double begin;                       /* seconds of every rank before the blocks: digests, texts  */
    double look;                        /* seconds per byte of a candidate of another rank: rank 0 looks at it */
    calm_replay_parts guard, test;
    double alone;                       /* seconds of rank 0 between the two: steps of learning, writing */
    double passes;                      /* of all windows through float and learned blocks between the steps */
} calm_replay_costs;

typedef struct calm_replay_cluster {
    int ranks, per_node;                /* per_node: ranks on one machine                           */
    int threads, cores;                 /* of a rank; of a machine                                  */
    double bandwidth, latency;          /* between machines: bytes per second each way; seconds     */
} calm_replay_cluster;

typedef struct calm_replay {
    double seconds;                     /* of the whole run                                         */
    double blocks_seconds;              /* of those: until the last rank has computed its blocks     */
    double idle;                        /* share of the ranks' time in which they had nothing to do */
    double work, most_work;             /* seconds of work, on its own cores: of all ranks; of one at most */
    double rows_bytes;                  /* hidden rows from rank to rank                            */
    double blobs_bytes;                 /* candidates that others than rank 0 put into the store's folder */
    size_t unused;                      /* ranks without a block                                    */
} calm_replay;

/* Replay the run.  CALM_ENOMEM. */
calm_status calm_replay_run(calm_ctx *ctx, const calm_replay_costs *costs, const calm_replay_cluster *cluster,
                            calm_replay *out);

/* ---- the forecast of a recipe (forecast.c) ---- */

typedef struct calm_forecast {
    calm_memory_plan memory;
    calm_memory_plan divided;               /* of each of several ranks                                       */
    double seconds;                         /* the sum of `costs`                                             */
    calm_replay_costs costs;                /* of the steps, on the threads of one rank                       */
    double learn_seconds;                   /* of those; 0: nothing is learned                                */
    double tie_seconds;                     /* besides, at most, where hybrid and one uniform run are within an error:
                                             * what the guard measures both on then                           */
    double bytes_before, bytes_after;       /* of the checkpoint                                              */
    double bits_per_weight;                 /* of the quantized linears                                       */
    double store_bytes;                     /* that candidates take while it runs                             */
    double kept_bytes;                      /* at most of those when it has ended                             */
    size_t n_candidates;
    size_t score_rows, eval_windows;        /* that they are scored on; that float model and result are measured on */
    double sgemm_flops, dgemm_flops;        /* measured: per second, all threads; multiply-adds count two      */
    const calm_recipe *recipe;              /* as the run takes it: without schemes that no job can have       */
    calm_times times;                       /* `seconds` by stage; CPU as if no thread ever waited             */
    double *pool_seconds;                   /* [n_pool] of the candidates' time: of each entry                 */
} calm_forecast;

/* What was measured of this machine, for forecasts of several recipes with the same number of threads.  All zero at
 * first; algorithms are kept in the arena of results of the context that measured them. */
typedef struct calm_forecast_rates {
    double sgemm_flops, dgemm_flops, operand_flops[CALM_OPERANDS_BF16X2 + 1];    /* 0: not measured yet */
    double value_seconds;                           /* calm_rates_value_seconds; 0: the same       */
    struct calm_forecast_entry *entries;            /* algorithms on a small job, by scheme and chain */
} calm_forecast_rates;

/* Seconds that learning of a result takes or would take on this machine, whose products are measured for a moment. */
calm_status calm_forecast_learning(calm_ctx *ctx, const calm_result *result, double *seconds);

/* What is not taken from this machine: its cores and its memory are not those of the ranks that are estimated. */
typedef struct calm_forecast_elsewhere {
    double sgemm_flops;    /* of all threads of a rank; 0: this many times what one thread does here */
} calm_forecast_elsewhere;

/* Open the run of a recipe, measure this machine for a second (matrix products, and each algorithm on a small job), and
 * add up.  Candidates that the store has already are not taken into account.  `elsewhere` NULL: the run is to be on
 * this machine; else memory is what the recipe allows, or without limit, and rates are what one thread does in its CPU
 * time, times the number of threads, in proportion to that of sgemm.  `rates`: what is there is not measured again,
 * what is measured goes into it; NULL: for this forecast alone.  Fails as opening the run does. */
calm_status calm_forecast_make(calm_ctx *ctx, const calm_recipe *recipe, const calm_forecast_elsewhere *elsewhere,
                               calm_forecast_rates *rates, calm_forecast *out);
