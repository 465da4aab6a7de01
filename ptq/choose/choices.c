/* Solves the choice of a run from its candidates, and puts it into the store. */
#include "ptq/choose/choose_impl.h"
#include "ptq/state/run_pool.h"

calm_status calm_choices_put(calm_ctx *ctx, calm_store *store, int64_t run, const calm_pool *pool,
                             const calm_solution *solution)
{
    /* One row per job, also for larger units, so that a reader finds a job's candidate without knowing the unit. */
    for (size_t u = 0; u < pool->n_units; u++)
        for (size_t job = pool->unit_begin[u]; job < pool->unit_begin[u + 1]; job++) {
            bool disagrees;
            const size_t entry = solution->choice[u];
            const char *advice = calm_pool_advice(pool, job, entry, &disagrees);
            const calm_store_choice choice = {.run_id = run, .job_id = pool->jobs[job].id,
                                              .candidate_id = calm_pool_cell_at(pool, job, entry)->id,
                                              .unit = pool->jobs[job].unit, .reason = solution->reasons[u],
                                              .advice = advice, .disagrees = disagrees};
            CALM_TRY(calm_store_choice_put(ctx, store, &choice));
        }
    return CALM_OK;
}

/* Makes a solution the run's choice, in memory and in the store. */
static calm_status take(calm_ctx *ctx, calm_run *p, const calm_solution *solution)
{
    CALM_TRY(calm_run_spread(ctx, p, &p->pool, solution, &p->choice));
    /* In one transaction, because a plan with choices for some jobs could be assembled by mistake. */
    CALM_SCOPED_TRANSACTION(ctx, p->in.store);
    CALM_TRY(calm_choices_put(ctx, p->in.store, p->result.run_id, &p->pool, solution));
    return calm_store_commit(ctx, p->in.store);
}

calm_status calm_run_choose(calm_ctx *ctx, calm_run *p)
{
    const calm_requests requests = calm_run_requests(p, p->in.recipe->selection.unit);
    calm_solution solution;
    calm_memory_note(ctx, &p->held.capture);
    /* The pool was read before the candidates were computed; now it has their scores. */
    CALM_TRY(calm_run_rescope(ctx, p));
    CALM_TRY(calm_solve(ctx, &p->pool, &requests, &solution));
    p->choosing->cost = solution.cost;
    return take(ctx, p, &solution);
}

/* ---- budgets of bits ---- */

/* Measures, or estimates, the narrowest option of every unit; the losses of the unit's other options are scaled by it.
 * */
static calm_status probe_narrowest(calm_ctx *ctx, calm_run *p)
{
    calm_probe *probes;
    size_t *entries;
    CALM_TRY(calm_solve_narrowest(ctx, &p->pool, &p->scope, &entries));
    CALM_TRY(CALM_NEW(ctx, ctx->out, probes, p->pool.n_units));
    /* Any job of a unit identifies it. */
    for (size_t u = 0; u < p->pool.n_units; u++)
        probes[u] = (calm_probe){calm_inputs_job(&p->in, p->pool.unit_begin[u]), entries[u]};
    const calm_unit unit = p->in.recipe->selection.unit;
    if (p->in.recipe->sensitivity == CALM_SENSITIVITY_GRADIENT)
        return calm_run_gradient(ctx, p, unit, probes, p->pool.n_units);
    return calm_run_probe(ctx, p, unit, probes, p->pool.n_units);
}

/* Adds a trial to the guard's list if it fits the budget.  `widths`: as in calm_trial_append. */
static calm_status add_trial(calm_ctx *ctx, const calm_run *p, const char *name, const calm_solution *solution,
                             size_t widths, calm_pareto *out)
{
    size_t *choice;
    /* A uniform run with more bits is not a fair alternative. */
    const double act_budget = p->in.recipe->act_budget;
    if (solution->bits > calm_budget_bits(&p->pool, out->budget) ||
        (act_budget > 0 && solution->act_bits > calm_budget_bits(&p->pool, act_budget)))
        return CALM_OK;
    CALM_TRY(calm_run_spread(ctx, p, &p->pool, solution, &choice));
    CALM_TRY(calm_trial_new(ctx, &p->in, name, choice, &out->trials[out->n_trials]));
    out->trials[out->n_trials].substituted = solution->substituted;
    CALM_TRY(calm_trial_constrain(ctx, p, choice, &out->trials[out->n_trials]));
    calm_trial_append(out->trials, widths, &out->n_trials);
    return CALM_OK;
}

/* Lists the trials: the hybrid, then each scheme and each entry in all units, if it fits the budget. */
static calm_status list_trials(calm_ctx *ctx, const calm_run *p, const calm_solution *hybrid, calm_pareto *out)
{
    const calm_pool *pool = &p->pool;
    calm_solution solution;
    char *name;
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->trials, 1 + pool->n_schemes + pool->n_entries));
    CALM_TRY(
        calm_strf(ctx, ctx->out, &name, p->in.recipe->n_budgets > 1 ? "hybrid of %g bits" : "hybrid", out->budget));
    CALM_TRY(add_trial(ctx, p, name, hybrid, 0, out));
    for (size_t s = 0; s < pool->n_schemes; s++) {
        char scheme[CALM_SCHEME_NAME_MAX];
        const calm_status status = calm_solve_scheme(ctx, pool, &p->scope, s, &solution);
        if (status == CALM_ENUMERIC) {    /* a unit has no candidate of that scheme */
            calm_ctx_clear_failure(ctx);
            continue;
        }
        CALM_TRY(status);
        calm_scheme_name(&pool->schemes[s], scheme);
        CALM_TRY(calm_strf(ctx, ctx->out, &name, "all %s", scheme));
        CALM_TRY(add_trial(ctx, p, name, &solution, 0, out));
    }
    const size_t widths = out->n_trials;
    for (size_t i = 0; i < pool->n_entries; i++) {
        CALM_TRY(calm_solve_uniform(ctx, pool, &p->scope, i, &solution));
        CALM_TRY(add_trial(ctx, p, pool->entries[i].name, &solution, widths, out));
    }
    return CALM_OK;
}

/* Solves and guards the plan of one budget. */
static calm_status spend(calm_ctx *ctx, calm_run *p, calm_pareto *out, calm_solution *hybrid)
{
    calm_requests requests = calm_run_requests(p, p->in.recipe->selection.unit);
    /* All other requests hold for every budget. */
    requests.budget = out->budget;
    requests.act_budget = p->in.recipe->act_budget;
    CALM_TRY(calm_solve(ctx, &p->pool, &requests, hybrid));
    if (p->choosing->file)    /* uniform runs are compared with the same table choice */
        CALM_TRY(calm_run_file_take(ctx, p, hybrid->table));
    out->total = hybrid->total;
    CALM_TRY(list_trials(ctx, p, hybrid, out));
    CALM_TRY(calm_guard_judge(ctx, p, out->trials, out->n_trials, &out->result, &out->verdict));
    return calm_verdict_add(ctx, hybrid->cost, &out->verdict);
}

calm_status calm_run_spend(calm_ctx *ctx, calm_run *p)
{
    const calm_recipe *recipe = p->in.recipe;
    calm_solution hybrid;
    calm_memory_note(ctx, &p->held.capture);
    CALM_TRY(calm_run_rescope(ctx, p));
    CALM_TRY(calm_run_file_probe(ctx, p));
    CALM_TRY(probe_narrowest(ctx, p));
    CALM_TRY(calm_run_rescope(ctx, p));    /* with the probes */
    CALM_TRY(CALM_NEW(ctx, ctx->out, p->result.pareto, recipe->n_budgets));
    for (size_t i = 0; i < recipe->n_budgets; i++) {
        p->result.pareto[i].budget = recipe->budgets[i];
        CALM_TRY(spend(ctx, p, &p->result.pareto[i], &hybrid));
    }
    /* Several budgets are compared and none is exported, so the run itself has no choice. */
    if (recipe->n_budgets == 1) {
        const calm_pareto *only = &p->result.pareto[0];
        CALM_TRY(take(ctx, p, &hybrid));
        p->result.trials = only->trials;
        p->result.n_trials = only->n_trials;
        p->result.verdict = only->verdict;
        p->result.name = p->result.trials[only->result].name;
        p->result.plan = p->result.trials[only->result].plan;
    }
    calm_event_complete(&p->events, CALM_STAGE_CHOOSE);
    calm_memory_note(ctx, &p->held.evaluate);
    return CALM_OK;
}
