/* The pool of a run: its candidates as ptq/plan/solve.h chooses from them. */
#pragma once

#include "ptq/state/state.h"

/* The candidates of a run, for a selection; in ctx->out.  Jobs are those of the run, units those of the selection.
 * Until all candidates are computed the pool is pending, until they are surveyed it has no numbers. */
calm_status calm_pool_of_run(calm_ctx *ctx, const calm_run *p, const calm_selection *selection, calm_pool *out);

/* What the recipe asks of a choice between units of this kind: pins are about the recipe's own units alone. */
calm_requests calm_run_requests(const calm_run *p, calm_unit unit);

/* What recipe, pins and target leave to each unit, before anything is computed: p->pool and p->scope.  Schemes that no
 * job can have leave the recipe, which is then a copy.  CALM_EARG: as calm_scope_open. */
calm_status calm_run_restrict(calm_ctx *ctx, calm_run *p);

/* The scope that pins alone leave in a pool of the run.  CALM_EARG: as calm_scope_open. */
calm_status calm_run_check_pins(calm_ctx *ctx, const calm_run *p, const calm_pool *pool, calm_scope *out);

/* CALM_EARG: a budget of the recipe is below the smallest or above the largest plan; after calm_run_restrict. */
calm_status calm_run_check_budgets(calm_ctx *ctx, const calm_run *p);

/* p->pool and p->scope again, from what is known of the candidates now.  CALM_EARG: as calm_scope_open. */
calm_status calm_run_rescope(calm_ctx *ctx, calm_run *p);

/* May a job of the run have a scheme of the recipe?  Must it take this entry, or one of several with it? */
bool calm_run_takes(const calm_run *p, size_t job, size_t scheme);
bool calm_run_pins(const calm_run *p, size_t job, size_t entry);

/* choice [n_jobs of the layout], in ctx->out: what a solution over the run's jobs takes; others stay float. */
calm_status calm_run_spread(calm_ctx *ctx, const calm_run *p, const calm_pool *pool, const calm_solution *solution,
                            size_t **choice);
