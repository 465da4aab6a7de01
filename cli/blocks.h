/* The work on one block that has something to compute: candidates and activation statistics (blocks.c keeps the
 * order). */
#ifndef CALM_CLI_BLOCKS_H
#define CALM_CLI_BLOCKS_H

#include "cli/pipeline.h"
#include "ptq/calib/capture.h"

/* One candidate in work. */
typedef struct calm_work {
    size_t job, algorithm;         /* calm_job_kind, index into the recipe's algorithms          */
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
    const calm_capture *capture;
    calm_work *items;
    size_t n;
    calm_score_ref *reference[CALM_N_SUBLAYERS];
    size_t n_done;                 /* of the stage, all blocks together                          */
    size_t n_total;
} calm_block_work;

/* Quantize, then score, every item in parallel over items. */
calm_status calm_block_quantize(calm_ctx *ctx, calm_block_work *work);
calm_status calm_block_score(calm_ctx *ctx, calm_block_work *work);

/* Put every item's blob and row, in order. */
calm_status calm_block_keep(calm_ctx *ctx, calm_block_work *work);

/* Put the statistics of one hook point; block < 0: outside the blocks. */
calm_status calm_activation_keep(calm_ctx *ctx, const calm_pipeline *p, long block, calm_hook hook,
                                 const calm_act_acc *acc);

/* Is every hook point of a block (< 0: embedding and final norm) in the store? */
calm_status calm_activations_kept(calm_ctx *ctx, const calm_pipeline *p, long block, bool *out);

#endif
