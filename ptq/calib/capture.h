/* Capture: one block over the calibration windows - what its jobs' inputs look like, and the float outputs that
 * candidates are scored against.
 *
 *   N calibration rows   I inputs of a job   D hidden size   n rows of the scoring windows (the first ones)
 *
 * Sums have one order: rows within chunks of fixed size, chunks within windows, windows by number.  Neither the
 * number of threads nor the number of windows handled together changes a bit. */
#ifndef CALM_CALIB_CAPTURE_H
#define CALM_CALIB_CAPTURE_H

#include "ptq/base/context.h"
#include "ptq/calib/activation.h"
#include "ptq/model/forward.h"
#include "ptq/quant/stats.h"

typedef struct calm_capture_options {
    bool grams;               /* collect X^T X of every job                                  */
    bool activations;         /* collect the statistics of every hook point of the block     */
    size_t score_windows;     /* keep inputs and sublayer outputs of so many first windows   */
} calm_capture_options;

typedef struct calm_capture {
    calm_stats stats[CALM_N_JOBS];
    size_t width[CALM_N_JOBS];                   /* I                                        */
    size_t score_rows;                           /* n                                        */
    float *score_input[CALM_N_JOBS];             /* [n, I]                                   */
    float *score_output[CALM_N_SUBLAYERS];       /* [n, D] before the residual add           */
    calm_act_acc *activations[CALM_N_HOOKS];     /* NULL where the block has no such point   */
} calm_capture;

/* Run `block` over the whole batch in place (its hidden rows become the block's output) and collect into ctx->out. */
calm_status calm_capture_block(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, calm_batch *batch,
                               const calm_capture_options *options, calm_capture *out);

/* Statistics of rows outside the blocks (embedding output, final norm): the batch's hidden rows as they are. */
calm_status calm_capture_rows(calm_ctx *ctx, const calm_batch *batch, calm_act_acc **out);

#endif
