/* Learning: improves the result of a run by gradients.
 *
 * Blocks are learned one by one to reproduce the float block's output, or scales and norms of the whole model are tuned
 * on the divergence from the float model's predictions.  The guard judges the result. */
#pragma once

#include "ptq/choose/choose.h"
#include "ptq/ranks/ranks.h"

/* Estimates the cost of learning before the run, also if the recipe does not ask for it, into run->result.learned
 * (learn.c).  If the recipe asks: CALM_EARG: too few windows; warnings: few windows, nothing to learn. */
calm_status calm_learning_estimate(calm_ctx *ctx, calm_run *run);

/* Learns the blocks of the result, as the recipe asks, compares the learned plan with the result on the guard windows,
 * and makes it the result if the guard's rule says so (learn.c). */
calm_status calm_run_learn(calm_ctx *ctx, calm_run *run);

/* ---- learned blocks of a stored run (stored_learned.c) ---- */

/* Suffixes that a learned result, and a tuned one, append to the name of the plan that they began with; the name of the
 * learner that tunes. */
#define CALM_LEARNED_SUFFIX ", learned"
#define CALM_TUNED_SUFFIX ", tuned"
#define CALM_TUNER "kl"

/* Reads the blocks that a run learned, or (`tuned`) tuned, from `plan`: *blocks [n_blocks of the model] for
 * calm_plan_learn, in ctx->out.
 * CALM_EFORMAT: rows that do not belong to the model, or are incomplete. */
calm_status calm_learned_of_store(calm_ctx *ctx, calm_store *store, int64_t run, const calm_model *model,
                                  const calm_plan *plan, bool tuned, calm_learned ***blocks);

/* ---- another rank than 0 (learn_ranks.c) ---- */

/* What the rank keeps between two passes; NULL before the first one. */
typedef struct calm_learn_share calm_learn_share;
void calm_learn_share_close(calm_learn_share **share);

/* Answers a CALM_RANK_PASS question, whose kind has been read. */
calm_status calm_rank_pass(calm_ctx *ctx, calm_run *run, calm_rank_message *in, calm_text *answer);

/* ---- for memory plan and forecast ---- */

/* Returns the number of calibration windows that learning reads: those that candidates were fitted to. */
size_t calm_learn_windows(const calm_run *run);

/* Return the end, at most `end`, of the windows of the tuning step that begins at window `first`: one window, or
 * several sentences of an encoder; and the largest number of tokens of a step. */
size_t calm_tuning_end(const calm_run *run, size_t first, size_t end);
size_t calm_tuning_rows(const calm_run *run);

/* Return the peak bytes of all arenas, hidden states included, while blocks are learned, or while the model is tuned;
 * `spill`: hidden states are in a file.  0: the recipe does not ask for it. */
size_t calm_learn_bytes(const calm_run *run, unsigned extras, bool spill, size_t n_threads);
size_t calm_learn_model_bytes(const calm_run *run, unsigned extras, bool spill, size_t n_threads);
