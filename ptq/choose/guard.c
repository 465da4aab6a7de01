/* Guard: the hybrid against every uniform run, on windows that calibration did not see.
 *
 * The plan of least mean loss is the result, but of plans within one standard error the simplest: a uniform run is one
 * algorithm, the hybrid a table of units.  Before simplicity decides, more windows are measured (guard_extend.c). */
#include <math.h>
#include <string.h>

#include "ptq/choose/choose_impl.h"
#include "ptq/state/run_pool.h"

/* Lists the trials: the hybrid, and each uniform run. */
static calm_status list_trials(calm_ctx *ctx, calm_run *p)
{
    const calm_recipe *recipe = p->in.recipe;
    p->result.n_trials = recipe->n_pool + 1;
    CALM_TRY(CALM_NEW(ctx, ctx->out, p->result.trials, p->result.n_trials));
    CALM_TRY(calm_trial_new(ctx, &p->in, "hybrid", p->choice, &p->result.trials[0]));
    for (size_t a = 0; a < recipe->n_pool; a++) {
        calm_solution solution;
        size_t *choice;
        /* With the recipe's pins, like the hybrid, so that the comparison is of the choice, not of the pins. */
        CALM_TRY(calm_solve_uniform(ctx, &p->pool, &p->scope, a, &solution));
        CALM_TRY(calm_run_spread(ctx, p, &p->pool, &solution, &choice));
        CALM_TRY(calm_trial_new(ctx, &p->in, recipe->pool[a].name, choice, &p->result.trials[a + 1]));
        p->result.trials[a + 1].substituted = solution.substituted;
        CALM_TRY(calm_trial_constrain(ctx, p, choice, &p->result.trials[a + 1]));
    }
    return CALM_OK;
}

/* Prints "16 windows", or why there are more. */
static calm_status say_windows(calm_ctx *ctx, const calm_run *p, const calm_trial *trial, const char **out)
{
    const size_t first = p->in.guard.n, all = trial->more.windows;
    if (!all)
        return calm_strf(ctx, ctx->out, out, "%zu window%s", first, first == 1 ? "" : "s");
    return calm_strf(ctx, ctx->out, out, "%zu windows, %zu more than the first %zu, which could not decide", all,
                     all - first, first);
}

/* Copies the trials with the figures of the windows that decided.  If these are more than the first windows, only
 * trials that were measured on all of them keep their id. */
static calm_status decisive(calm_ctx *ctx, const calm_trial *trials, size_t n, calm_trial **out)
{
    CALM_TRY(CALM_NEW(ctx, ctx->out, *out, n));
    memcpy(*out, trials, n * sizeof *trials);
    for (size_t i = 0; trials[0].more.windows && i < n; i++) {
        const calm_trial_more *more = &trials[i].more;
        calm_trial *trial = &(*out)[i];
        trial->id = more->windows == trials[0].more.windows ? more->id : 0;
        trial->measure = more->measure;
        trial->delta = more->delta;
        trial->se = more->se;
    }
    return CALM_OK;
}

/* Prints why the uniform run `best` is the result; 0: why the hybrid is. */
static calm_status say_verdict(calm_ctx *ctx, const calm_run *p, const calm_trial *first, size_t n, size_t best,
                               const char **verdict)
{
    const char *windows;
    calm_trial *trials;
    CALM_TRY(decisive(ctx, first, n, &trials));
    const size_t same = calm_trial_same_uniform(trials, n), next = best ? best : calm_guard_least_uniform(trials, n);
    const calm_trial *trial = &trials[next];
    CALM_TRY(say_windows(ctx, p, trial, &windows));
    const char *loss = trial->measure.kind == CALM_STORE_EMBEDDINGS ? "1 - cosine" : "KL";
    const char *kept = p->in.recipe->keep_hybrid ? "; the hybrid is kept as asked (--keep-hybrid)"
                                                 : ", so it is the result";
    if (!next)
        return calm_strf(ctx, ctx->out, verdict, "no uniform run could be measured next to the hybrid");
    /* The hybrid equals a uniform run, so there is nothing to compare. */
    if (same && (!best || trials[best].delta >= 0))
        return calm_strf(ctx, ctx->out, verdict,
                         "every unit%s chose %s, so the hybrid is that uniform run; no other has less %s (%s)",
                         p->in.recipe->n_pins ? " without a pin" : "", trials[same].name, loss, windows);
    if (isnan(trial->se) && best)    /* of one window */
        return calm_strf(ctx, ctx->out, verdict,
                         "uniform %s has the least %s: %.5f less than the hybrid (%s, which has no standard error)%s",
                         trial->name, loss, -trial->delta, windows, kept);
    if (isnan(trial->se))
        return calm_strf(ctx, ctx->out, verdict,
                         "the hybrid has the least %s; next is uniform %s: %+.5f (%s, which has no standard error)",
                         loss, trial->name, trial->delta, windows);
    if (best && trial->delta < 0)
        return calm_strf(ctx, ctx->out, verdict,
                         "uniform %s has the least %s: %.5f less than the hybrid, with a paired standard error of %.5f "
                         "(%s)%s", trial->name, loss, -trial->delta, trial->se, windows, kept);
    if (best)
        return calm_strf(ctx, ctx->out, verdict,
                         "uniform %s is the simpler plan and within one paired standard error of the hybrid: %+.5f %s, "
                         "error %.5f (%s)%s", trial->name, trial->delta, loss, trial->se, windows, kept);
    return calm_strf(ctx, ctx->out, verdict,
                     "the hybrid has the least %s by more than one paired standard error; next is uniform %s: %+.5f, "
                     "error %.5f (%s)", loss, trial->name, trial->delta, trial->se, windows);
}

calm_status calm_guard_judge(calm_ctx *ctx, calm_run *p, calm_trial *trials, size_t n, size_t *result,
                             const char **verdict)
{
    *result = 0;
    *verdict = "no windows were left for the guard: nothing says that the hybrid is better than a uniform run";
    /* --guard-samples 0, or a text that is too short: the hybrid is the result, and the verdict says why. */
    if (!p->in.guard.n)
        return CALM_OK;
    /* Windows that no candidate was computed or scored from: the scores have chosen the hybrid, so they cannot judge
     * it. */
    CALM_TRY(calm_trials_measure(ctx, p, trials, n, &p->in.guard, p->in.recipe->calib_name, CALM_STAGE_CHOOSE));
    CALM_TRY(calm_trials_put(ctx, p, trials, n, "guard"));
    size_t best = calm_guard_pick(trials, n);
    CALM_TRY(calm_guard_extend(ctx, p, trials, n, &best));
    CALM_TRY(say_verdict(ctx, p, trials, n, best, verdict));
    /* The verdict says that a uniform run would be taken even when the hybrid is kept.  One with the hybrid's
     * candidates is the hybrid. */
    *result = p->in.recipe->keep_hybrid || strcmp(trials[best].key, trials[0].key) == 0 ? 0 : best;
    return CALM_OK;
}

calm_status calm_verdict_add(calm_ctx *ctx, const char *cost, const char **verdict)
{
    return cost ? calm_strf(ctx, ctx->out, verdict, "%s; %s", *verdict, cost) : CALM_OK;
}

calm_status calm_run_guard(calm_ctx *ctx, calm_run *p)
{
    size_t result;
    CALM_TRY(list_trials(ctx, p));
    CALM_TRY(calm_guard_judge(ctx, p, p->result.trials, p->result.n_trials, &result, &p->result.verdict));
    p->result.trial = &p->result.trials[result];
    p->result.plan = p->result.trials[result].plan;
    p->result.name = p->result.trials[result].name;
    /* Nothing was chosen; hybrid and uniform run are the same plan under two names. */
    if (p->in.recipe->n_pool == 1) {
        p->result.name = p->in.recipe->pool[0].name;
        p->result.verdict = "one algorithm: a uniform run";
    }
    CALM_TRY(calm_verdict_add(ctx, p->choosing->cost, &p->result.verdict));
    /* Also when every trial was in the store and nothing was measured. */
    calm_event_complete(&p->events, CALM_STAGE_CHOOSE);
    calm_memory_note(ctx, &p->held.evaluate);
    return CALM_OK;
}
