/* The pool of a run: its candidates in the form that ptq/plan/solve.h chooses from. */
#pragma once

#include "ptq/state/state.h"

/* Builds the pool of a run's candidates for a selection, in ctx->out.  Jobs are those of the run, units those of the
 * selection.  The pool is `pending` until all candidates are computed, and not `numbered` until they are surveyed. */
calm_status calm_pool_of_run(calm_ctx *ctx, const calm_run *p, const calm_selection *selection, calm_pool *out);

/* Returns the recipe's requests for units of this kind; pins apply only to the recipe's own kind of unit. */
calm_requests calm_run_requests(const calm_run *p, calm_unit unit);

/* Computes p->pool and p->scope, the entries that recipe, pins and target leave to each unit, before any candidate is
 * computed.  Removes schemes that no job can have from (a copy of) the recipe.  CALM_EARG: as calm_scope_open. */
calm_status calm_run_restrict(calm_ctx *ctx, calm_run *p);

/* Computes the scope of pins alone over a pool of the run.  CALM_EARG: as calm_scope_open. */
calm_status calm_run_check_pins(calm_ctx *ctx, const calm_run *p, const calm_pool *pool, calm_scope *out);

/* Fails with CALM_EARG if a budget is below the smallest or above the largest plan; call it after calm_run_restrict. */
calm_status calm_run_check_budgets(calm_ctx *ctx, const calm_run *p);

/* Computes p->pool and p->scope again from the candidates known by now.  CALM_EARG: as calm_scope_open. */
calm_status calm_run_rescope(calm_ctx *ctx, calm_run *p);

/* _takes returns true if a job of the run may have a scheme of the recipe; _pins returns true if the job is pinned and
 * its pin allows this entry. */
bool calm_run_takes(const calm_run *p, size_t job, size_t scheme);
bool calm_run_pins(const calm_run *p, size_t job, size_t entry);

/* Expands a solution over the run's jobs to choice [n_jobs of the layout] in ctx->out; other jobs stay float. */
calm_status calm_run_spread(calm_ctx *ctx, const calm_run *p, const calm_pool *pool, const calm_solution *solution,
                            size_t **choice);
