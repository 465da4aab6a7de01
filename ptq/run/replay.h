/* Replay of a divided run: how long it takes on so many ranks, from what its parts cost on one.
 *
 * The same steps in the same order as flow.c, division.c and measure_ranks.c take them, window by window, with seconds
 * in place of work.  Ranks of one machine share its cores and its connection. */
#ifndef CALM_RUN_REPLAY_H
#define CALM_RUN_REPLAY_H

#include <stdbool.h>

#include "ptq/base/context.h"

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
    double work, most_work;             /* seconds of work, on cores of its own: of all ranks; of one at most */
    double rows_bytes;                  /* hidden rows from rank to rank                            */
    double blobs_bytes;                 /* candidates that others than rank 0 put into the store's folder */
    size_t unused;                      /* ranks without a block                                    */
} calm_replay;

/* Replay the run.  CALM_ENOMEM. */
calm_status calm_replay_run(calm_ctx *ctx, const calm_replay_costs *costs, const calm_replay_cluster *cluster,
                            calm_replay *out);

#endif
