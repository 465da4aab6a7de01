/* Learning: improves the result of a run by gradients.
 *
 * Blocks are learned one by one to give the float block's output, or scales and norms of the whole model are tuned on
 * the divergence from its predictions.  The guard judges the result. */
#pragma once

#include "ptq/choose/choose.h"
#include "ptq/ranks/ranks.h"

/* Before any work: what learning takes or would take, into run->result.learned (learn.c).  When the recipe asks for it:
 * CALM_EARG of too few windows; warnings of few, and of nothing to learn. */
calm_status calm_learning_estimate(calm_ctx *ctx, calm_run *run);

/* Learn the blocks of the result, as the recipe asks, measure the learned plan next to it on the guard windows, and
 * make it the result if the guard's rule says so (learn.c). */
calm_status calm_run_learn(calm_ctx *ctx, calm_run *run);

/* ---- learned blocks of a stored run (stored_learned.c) ---- */

/* Suffix of the name of a learned result; before it is the name of the plan that was learned from.  The same of a tuned
 * model, whose blocks may have been learned before; the name of the learner that tunes. */
#define CALM_LEARNED_SUFFIX ", learned"
#define CALM_TUNED_SUFFIX ", tuned"
#define CALM_TUNER "kl"

/* blocks [n_blocks of the model], in ctx->out, as calm_plan_learn takes them: as they were learned, or (`tuned`) tuned,
 * from `plan`.
 * CALM_EFORMAT: rows that do not belong to the model, or are incomplete. */
calm_status calm_learned_of_store(calm_ctx *ctx, calm_store *store, int64_t run, const calm_model *model,
                                  const calm_plan *plan, bool tuned, calm_learned ***blocks);

/* ---- another rank than 0 (learn_ranks.c) ---- */

/* What it holds between two passes: NULL, or made by the first one. */
typedef struct calm_learn_share calm_learn_share;
void calm_learn_share_close(calm_learn_share **share);

/* Answer a question CALM_RANK_PASS whose kind has been read. */
calm_status calm_rank_pass(calm_ctx *ctx, calm_run *run, calm_rank_message *in, calm_text *answer);

/* ---- what memory plan and forecast ask ---- */

/* Calibration windows that learning reads: those that candidates were fitted to. */
size_t calm_learn_windows(const calm_run *run);

/* The end of the windows from `first` on, at most `end`, that make a step: one, of an encoder's sentences some; and the
 * most tokens that a step has. */
size_t calm_tuning_end(const calm_run *run, size_t first, size_t end);
size_t calm_tuning_rows(const calm_run *run);

/* Most bytes of all arenas while blocks are learned, or the model is tuned, hidden rows included; `spill`: those are in
 * a file.  0: the recipe does not ask for it. */
size_t calm_learn_bytes(const calm_run *run, unsigned extras, bool spill, size_t n_threads);
size_t calm_learn_model_bytes(const calm_run *run, unsigned extras, bool spill, size_t n_threads);
