/* Learned blocks of a stored run, read back from their rows. */
#ifndef CALM_RUN_STORED_LEARNED_H
#define CALM_RUN_STORED_LEARNED_H

#include "ptq/run/inputs.h"

/* What the name of a learned result ends in; before it is the name of the plan that was learned on from. */
#define CALM_LEARNED_SUFFIX ", learned"
/* The same of a model that was tuned, perhaps after its blocks were learned; and what the name of its learner is. */
#define CALM_TUNED_SUFFIX ", tuned"
#define CALM_TUNER "kl"

/* blocks [n_blocks of the model], in ctx->out, as calm_plan_learn takes them: as they were learned, or (`tuned`) as
 * they were tuned.  CALM_EFORMAT: rows that are none of the
 * model's, or incomplete. */
calm_status calm_learned_of_store(calm_ctx *ctx, calm_store *store, int64_t run, const calm_model *model,
                                  bool tuned, calm_learned ***blocks);

#endif
