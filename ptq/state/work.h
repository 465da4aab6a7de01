/* Floating-point operations of a run, computed from shapes alone: the same on every machine, before the run. */
#pragma once

#include "ptq/state/inputs.h"

/* Operations; a multiply-add counts as two. */
typedef struct calm_run_work {
    double forward;    /* forward passes of calibration and guard */
    double gram;       /* Gram matrices of inputs, in float */
    double outputs;    /* outputs of scored candidates, in float */
    double factors;    /* factors of Gram matrices, in double */
    double scores;     /* Gram matrices of scores, in double */
    double chains;     /* algorithms on the Gram matrix, without `factors` */
} calm_run_work;

/* Returns the sum in operations of float products; operations in double count twice, because they take twice as
 * long. */
double calm_run_work_cost(const calm_run_work *work);

/* Returns the operations of a forward pass of one token through the whole model with its head. */
double calm_run_work_token(const calm_inputs *in);

/* Returns the operations of one token of a window of `window` tokens through blocks first .. end - 1, with
 * attention. */
double calm_run_work_blocks(const calm_inputs *in, size_t first, size_t end, double window);

/* Returns the operations of the head for one token. */
double calm_run_work_head(const calm_inputs *in);

/* Returns the operations of a gradient pass over the first n calibration windows, back to the input of block
 * `first`. */
double calm_run_work_gradients(const calm_inputs *in, size_t n, size_t first);

/* Returns the operations of one block: a pass of the calibration windows through it, if candidates need their rows, and
 * its candidates, if the recipe quantizes the block. */
calm_run_work calm_run_work_of_block(const calm_inputs *in, size_t block);

/* Returns the operations of the guard's forward passes: float model, hybrid and every uniform run. */
double calm_run_work_guard(const calm_inputs *in);

/* Chooses the rows on which candidates are scored, in->score_tokens and in->scoring (in ctx->out): all rows of the
 * scoring windows, or the first tokens of each if the recipe limits the rows.  The limit keeps scores at a tenth of the
 * work that a pool like the default one shares.  It depends only on model and calibration windows.  CALM_ENOMEM. */
calm_status calm_run_work_cut_scoring(calm_ctx *ctx, calm_inputs *in);

/* Reads the windows (for an encoder: sentences) of the evaluation's text: the first ones or all, if the recipe says so;
 * otherwise, spread over the text, as many as cost 15 % of the run with its evaluation, but at least 16.  If these are
 * fewer than 64 windows of 512 tokens in a run below 10^13 operations: as many of those as cost a third of the run.
 * Fails as calm_windows_read and calm_sentences_read do. */
calm_status calm_run_work_read_eval(calm_ctx *ctx, const calm_inputs *in, calm_windows *out);
