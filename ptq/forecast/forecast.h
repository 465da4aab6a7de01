/* Forecast: memory, disk and time of a run and the size of its result, without running it. */
#pragma once

#include <stdbool.h>

#include "ptq/base/context.h"
#include "ptq/state/memory_plan.h"
#include "ptq/state/result.h"

/* ---- time on several ranks (replay.c) ---- */

/* The costs of one block, in seconds of a rank that has its cores alone. */
typedef struct calm_replay_block {
    double pass;      /* forward pass of all windows */
    double work;      /* capture without that pass, and candidates */
    double blobs;     /* bytes of its candidates in the store */
    bool together;    /* the forward pass needs all windows at once: a mixture */
    bool todo;        /* it has candidates to compute */
    double cost;      /* calm_run_work_cost, by which blocks are divided among ranks */
} calm_replay_block;

/* Windows that ranks measure in parts of whole batches. */
typedef struct calm_replay_parts {
    double seconds;           /* for all windows on one rank */
    size_t windows, batch;    /* number of windows; windows per batch */
} calm_replay_parts;

typedef struct calm_replay_costs {
    const calm_replay_block *blocks;    /* [n_blocks] blocks that the run computes or passes through */
    size_t n_blocks;
    bool divides;                       /* false: rank 0 computes all blocks */
    bool flows;                         /* blocks need hidden states of earlier blocks; false: they need none */
    size_t windows;                     /* number of calibration windows */
    double window_bytes;                /* bytes of one window's hidden states */
    double begin;                       /* seconds of every rank before the blocks: digests, texts */
    double look;                        /* seconds per byte in which rank 0 checks another rank's candidate */
    calm_replay_parts guard, test;
    double alone;                       /* seconds of rank 0 between guard and test: steps of learning, writing */
    double passes;                      /* seconds of passes of all windows through float and learned blocks */
} calm_replay_costs;

typedef struct calm_replay_cluster {
    int ranks, per_node;                /* number of ranks; ranks per machine */
    int threads, cores;                 /* threads per rank; cores per machine */
    double bandwidth, latency;          /* between machines: bytes per second in each direction; seconds */
} calm_replay_cluster;

typedef struct calm_replay {
    double seconds;                     /* of the whole run */
    double blocks_seconds;              /* until the last rank has computed its blocks */
    double idle;                        /* share of the ranks' time without work */
    double work, most_work;             /* seconds of work on free cores: of all ranks; the most of one rank */
    double rows_bytes;                  /* bytes of hidden states sent between ranks */
    double blobs_bytes;                 /* bytes of candidates that ranks other than 0 write to the store's folder */
    size_t unused;                      /* ranks without a block */
} calm_replay;

/* Simulates the run on the cluster.  CALM_ENOMEM. */
calm_status calm_replay_run(calm_ctx *ctx, const calm_replay_costs *costs, const calm_replay_cluster *cluster,
                            calm_replay *out);

/* ---- the forecast of a recipe (forecast.c) ---- */

typedef struct calm_forecast {
    calm_memory_plan memory;
    calm_memory_plan divided;               /* memory plan of each of several ranks */
    double seconds;                         /* the sum of `costs` */
    calm_replay_costs costs;                /* costs of the steps on the threads of one rank */
    double learn_seconds;                   /* part of them for learning; 0: nothing is learned */
    double tie_seconds;                     /* the most further time if hybrid and a uniform run differ by less than
                                             * their error: both are measured on more windows then */
    double bytes_before, bytes_after;       /* of the checkpoint */
    double bits_per_weight;                 /* mean over the quantized linears */
    double store_bytes;                     /* peak bytes of candidates during the run */
    double kept_bytes;                      /* the most bytes of candidates after its end */
    size_t n_candidates;
    size_t score_rows, eval_windows;        /* rows that score candidates; windows of the final evaluation */
    double sgemm_flops, dgemm_flops;        /* measured operations per second of all threads; multiply-adds count two */
    const calm_recipe *recipe;              /* the run's recipe, without schemes that no job can have */
    calm_times times;                       /* `seconds` by stage; CPU time as if no thread ever waited */
    double *pool_seconds;                   /* [n_pool] the candidates' time by entry */
} calm_forecast;

/* Measured speeds of this machine, for forecasts of several recipes with the same number of threads.  Initially all
 * zero; algorithms are in the results arena of the context that measured them. */
typedef struct calm_forecast_rates {
    double sgemm_flops, dgemm_flops, operand_flops[CALM_OPERANDS_BF16X2 + 1];    /* 0: not measured yet */
    double value_seconds;                           /* calm_rates_value_seconds; 0: not measured yet */
    struct calm_forecast_entry *entries;            /* times of algorithms on a small job, by scheme and chain */
} calm_forecast_rates;

/* Estimates the seconds that learning from a result takes on this machine, whose products are measured briefly. */
calm_status calm_forecast_learning(calm_ctx *ctx, const calm_result *result, double *seconds);

/* A machine other than this one, whose cores and memory are not measured. */
typedef struct calm_forecast_machine {
    double sgemm_flops;    /* of all threads of a rank; 0: threads times the speed of one thread here */
} calm_forecast_machine;

/* Opens the run of a recipe, measures this machine for about a second (matrix products, and each algorithm on a small
 * job), and adds up the costs.  Ignores candidates that the store has.  elsewhere NULL: the run is on this machine;
 * else memory is limited by the recipe only, and speeds are those of one thread here per CPU second, times the threads,
 * scaled by the speed of sgemm.  rates: speeds that are known, and to which measured ones are added; NULL: none.  Fails
 * as opening the run does. */
calm_status calm_forecast_make(calm_ctx *ctx, const calm_recipe *recipe, const calm_forecast_machine *elsewhere,
                               calm_forecast_rates *rates, calm_forecast *out);
