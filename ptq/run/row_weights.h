/* What rows of calibration count, by gradients of the float model.
 *
 * A candidate is fitted to the rows of its job's input: to sum_t w_t |E x_t|^2, E the error of its weights.  Without
 * weights w_t is 1.  An error of row t costs the model about |g_t . E x_t|^2, g_t the gradient at the job's outputs of
 * predictions in a random direction (ptq/run/gradient_pass.h): rows of large gradients count more.  w_t = |g_t|, the
 * root of what a single draw says, held within a factor of 4 of its mean, gains most (docs/measured.md). */
#ifndef CALM_RUN_ROW_WEIGHTS_H
#define CALM_RUN_ROW_WEIGHTS_H

#include "ptq/run/block_work.h"

/* Where the recipe asks for it, run->row_factors of the blocks that this rank is to compute candidates of, in `arena`;
 * every rank computes its own.  Fails as calm_gradient_pass_run does. */
calm_status calm_run_weigh_rows(calm_ctx *ctx, calm_run *run, const calm_missing *missing, calm_arena *arena);

/* What that leaves in the arena at most; 0 where the recipe does not ask for it. */
size_t calm_run_weigh_rows_bytes(const calm_run *run);

#endif
