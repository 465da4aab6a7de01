/* The work on one block that has something to compute: candidates and activation statistics (blocks.c keeps the order
 * of blocks, block_run.c that within a block). */
#ifndef CALM_CLI_BLOCKS_H
#define CALM_CLI_BLOCKS_H

#include "cli/pipeline.h"
#include "ptq/calib/capture.h"

/* What the store lacks of a run. */
typedef struct calm_missing {
    bool *activations;      /* [n_blocks]                        */
    bool outside;           /* embedding or final norm           */
    size_t n_candidates;    /* to be computed, all blocks        */
    size_t end;             /* blocks that have to be run        */
} calm_missing;

/* A sublayer or an expert that was captured, and what its candidates are scored against. */
typedef struct calm_captured {
    const calm_capture *capture;
    size_t job[CALM_N_JOBS];       /* its jobs in the layout, where capture->job[kind].used      */
    calm_score_ref *reference;     /* NULL: too few rows to score                                */
} calm_captured;

/* One candidate in work. */
typedef struct calm_work {
    const calm_captured *from;
    size_t job, algorithm;         /* in the layout; in the recipe's algorithms                  */
    const calm_algorithm *used;    /* that one, or the one that needs no data                    */
    calm_arena arena;              /* owns qjob                                                  */
    calm_qjob qjob;
    calm_scores scores;
    bool failed;                   /* by its own numbers: a row in the store, not the end        */
    char reason[CALM_MESSAGE_MAX];
    double seconds;                /* of quantizing                                              */
} calm_work;

/* Everything the tasks of a block read; they write their own calm_work alone. */
typedef struct calm_block_work {
    calm_pipeline *p;
    const calm_block *block;
    calm_work *items;
    size_t n;
    size_t n_done;                 /* of the stage, all blocks together                          */
    size_t n_total;
} calm_block_work;

/* Compute what a block lacks and advance the batch over it.  `done` counts finished candidates.  Everything of the
 * block is gone afterwards. */
calm_status calm_block_process(calm_ctx *ctx, calm_pipeline *p, size_t index, const calm_missing *lacks,
                               calm_batch *batch, size_t *done);

/* Fewest rows that the metrics are defined for. */
#define CALM_LEAST_SCORE_ROWS 4

/* Quantize, then score, every item; as many at once as memory allows. */
calm_status calm_block_quantize(calm_ctx *ctx, calm_block_work *work);
calm_status calm_block_score(calm_ctx *ctx, calm_block_work *work);

/* Put every item's blob and row, in order. */
calm_status calm_block_keep(calm_ctx *ctx, calm_block_work *work);

/* Put the statistics of one hook point; block < 0: outside the blocks. */
calm_status calm_activation_keep(calm_ctx *ctx, const calm_pipeline *p, long block, long expert, calm_hook hook,
                                 const calm_act_acc *acc);

/* Put those of a sublayer or an expert, in one transaction. */
calm_status calm_activations_keep(calm_ctx *ctx, const calm_pipeline *p, size_t block, const calm_capture *capture);

/* Are the hook points of a block (< 0: embedding and final norm) in the store?  The block's output is put last. */
calm_status calm_activations_kept(calm_ctx *ctx, const calm_pipeline *p, long block, bool *out);

#endif
