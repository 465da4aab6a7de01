/* The passes through all windows between two blocks that are learned, on several ranks.
 *
 * A block's steps need each other, and the block before: rank 0 takes them alone.  What lies between is divided by
 * windows, which meet in no sum: the others run the float block ahead while rank 0 learns the block before it, and a
 * part of the windows through the learned block.  Of a mixture, whose experts multiply the rows of all windows
 * together, one other rank runs the float block, and rank 0 the learned one. */
#ifndef CALM_RUN_LEARN_RANKS_H
#define CALM_RUN_LEARN_RANKS_H

#include "ptq/model/batch.h"
#include "ptq/plan/plan.h"
#include "ptq/run/run_impl.h"

/* Rank 0, before the first block: the log says what is divided; nothing on one rank. */
void calm_learn_ranks_note(calm_ctx *ctx, const calm_run *run);

/* *floats, the learned windows, from the rows that enter the float block to those that leave it.  Blocks come in their
 * order from 0 on; what enters the first is embedded. */
calm_status calm_learn_ranks_float(calm_ctx *ctx, const calm_run *run, size_t block, calm_batch *floats);

/* The next float block will be wanted, too: other ranks begin with it. */
calm_status calm_learn_ranks_ahead(calm_ctx *ctx, const calm_run *run, size_t next, const calm_batch *floats);

/* After that, *quantized likewise through the block as the plan has it (NULL: as it is). */
calm_status calm_learn_ranks_quantized(calm_ctx *ctx, const calm_run *run, size_t block, const calm_plan *plan,
                                       calm_batch *quantized);

/* ---- another rank ---- */

/* What it holds between two passes: NULL, or made by the first one. */
typedef struct calm_learn_share calm_learn_share;
void calm_learn_share_close(calm_learn_share **share);

#endif
