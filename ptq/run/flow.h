/* The flow of hidden rows from rank to rank: those that enter a block come from the rank that has the block before.
 *
 * A thread moves them, a few windows at a time, while the run's thread computes: rows for the rank's next block arrive
 * during the work on the one before it. */
#ifndef CALM_RUN_FLOW_H
#define CALM_RUN_FLOW_H

#include "ptq/run/division.h"
#include "ptq/model/batch.h"

#define CALM_FLOW_AT_ONCE 4                 /* windows under way in each direction             */
#define CALM_FLOW_IDLE_MICROSECONDS 500     /* between two looks while something is under way  */

typedef struct calm_flow calm_flow;

/* Begin, for a run with several ranks whose rows move: room for the rows of two blocks in `arena`, or in files.  Close
 * with calm_flow_close, also after a failure. */
calm_status calm_flow_open(calm_ctx *ctx, calm_run *run, const calm_missing *missing, calm_arena *arena,
                           calm_flow **out);
void calm_flow_close(calm_flow **flow);

/* Prepare a block of this rank: *batch has the rows that enter it, embedded, left by this rank's block before it, or
 * received, and valid until the next call; what leaves the block is on its way to the rank that has the next one.  The
 * rows of *batch are then the caller's to advance. */
calm_status calm_flow_enter(calm_ctx *ctx, calm_flow *flow, size_t block, calm_batch **batch);

/* Wait until everything is sent. */
calm_status calm_flow_finish(calm_ctx *ctx, calm_flow *flow);

#endif
