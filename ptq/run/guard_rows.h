/* The guard beside the blocks: hidden rows of its windows behind the blocks so far, of the float model, the hybrid and
 * every uniform run.
 *
 * Where a block's choice is the last word on it, all of them pass the block as soon as it has chosen; then nobody asks
 * for the codes of its losers any more, and the store never has those of more than one block.  Rows lie in a file
 * beside the store, written anew block by block, so that a run that was killed goes on with them.  What is measured has
 * the bits of an evaluation that runs the blocks itself: the same batches go through the same blocks. */
#ifndef CALM_RUN_GUARD_ROWS_H
#define CALM_RUN_GUARD_ROWS_H

#include "ptq/run/run_impl.h"

/* May the guard of a run measure beside its blocks?  Only where choices are final block by block (calm_run_settles),
 * and of decoders: encoders are small, and each sentence is measured alone.  Does it?  Where that takes less disk, too
 * (forecast_store.c). */
bool calm_guard_may_follow(const calm_run *p);
bool calm_guard_follows(const calm_run *p);

/* ---- which plans, and when (guard_follow.c) ---- */

/* Before the blocks are run: go on with the rows that a killed run has left, or begin with those of the embedding where
 * any candidate is `missing`.  Without either there are none, and the guard runs the blocks itself. */
calm_status calm_guard_rows_begin(calm_ctx *ctx, calm_run *p, bool missing);

/* The candidates of the blocks up to this one are complete: plans pass them, as far as they have not yet.  A plan that
 * has no codes there leaves, and is measured as if it had never been followed.  Nothing is done without rows.
 * CALM_ENOSPC, CALM_EIO: of the file. */
calm_status calm_guard_rows_pass(calm_ctx *ctx, calm_run *p, size_t block);

/* Does nothing that is measured later need the losers of a block?  All that are followed have passed it, or there is no
 * guard. */
bool calm_guard_rows_spare(const calm_run *p, size_t block);

/* Before trials of[0 .. n) are measured on windows: let rows pass the blocks that are left, and compute codes again
 * that the store has dropped, of plans that have no rows.  Those of more than one plan come block by block and leave
 * again, instead of all being there at once.  Fails as calm_run_restore does (guard_recall.c). */
calm_status calm_guard_rows_recall(calm_ctx *ctx, calm_run *p, const calm_trial *trials, const size_t *of, size_t n,
                                   const calm_windows *windows);

/* ---- the rows ---- */

/* Let a subject have its rows on these windows, if they are there: of the plan with this key, NULL: of the float model.
 * True: it has them. */
bool calm_guard_rows_give(const calm_run *p, const char *key, const calm_windows *windows, calm_subject *subject);

/* No rows any more; the file stays for a run that goes on.  _remove: it goes, too. */
void calm_guard_rows_close(calm_run *p);
void calm_guard_rows_remove(calm_ctx *ctx, calm_run *p);

/* What they hold besides a block and what runs it: rows of a batch, names, tables; and the most that their files take.
 * Of a run with guard windows. */
size_t calm_guard_rows_bytes(const calm_run *p);
double calm_guard_rows_file_bytes(const calm_run *p);

#endif
