/* Guard, further windows: while only simplicity decides, the guard measures more windows.
 *
 * Of two plans within one standard error the guard takes the simpler, although the windows may just be too few to tell
 * them apart.  So the hybrid and every uniform run within one error are measured on twice as many windows.  Uniform
 * runs that are then worse by more than an error are dropped, and so on, until a uniform run has less loss than the
 * hybrid, none is left, or there are no more windows. */
#include <string.h>

#include "ptq/choose/choose_impl.h"

/* The trials [n] that are still compared, the hybrid first: copies of the guard's with the figures of all `windows` so
 * far. */
typedef struct contest {
    calm_trial *trials;
    size_t *number;    /* [n] index in the guard's list, which keeps the figures of its first windows */
    size_t n, windows;
} contest;

static calm_status open_contest(calm_ctx *ctx, const calm_run *p, const calm_trial *trials, size_t n, contest *out)
{
    *out = (contest){.n = n, .windows = p->in.guard.n};
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->trials, n));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->number, n));
    memcpy(out->trials, trials, n * sizeof *trials);
    for (size_t i = 0; i < n; i++)
        out->number[i] = i;
    return CALM_OK;
}

/* Is the result a uniform run with more loss than the hybrid, only because it is simpler? */
static bool is_undecided(const contest *c)
{
    const size_t best = calm_guard_pick(c->trials, c->n);
    return best && c->trials[best].delta > 0;
}

/* Drops the trials that cannot replace the hybrid. */
static void drop_others(contest *c)
{
    size_t kept = 1;
    for (size_t i = 1; i < c->n; i++) {
        if (!c->trials[i].id || !(c->trials[i].delta <= c->trials[i].se))
            continue;
        c->trials[kept] = c->trials[i];
        c->number[kept++] = c->number[i];
    }
    c->n = kept;
}

/* Puts the evaluation of a trial on all windows so far, which decides, into the store. */
static calm_status put_joined(calm_ctx *ctx, const calm_run *p, const contest *c, calm_trial *trial)
{
    calm_windows all;
    CALM_TRY(calm_windows_slice(ctx, &p->in.guard_all, 0, c->windows, &all));
    return calm_run_put_evaluation(ctx, p, trial->key, trial->name, p->in.recipe->calib_name, &all, &trial->measure,
                                   &trial->id);
}

/* Measures the windows up to `end`, and compares on all windows so far. */
static calm_status measure_on(calm_ctx *ctx, calm_run *p, contest *c, size_t end)
{
    calm_windows added;
    calm_trial *parts;
    const size_t n_added = end - c->windows;
    CALM_TRY(calm_windows_slice(ctx, &p->in.guard_all, c->windows, n_added, &added));
    CALM_TRY(CALM_NEW(ctx, ctx->out, parts, c->n));
    memcpy(parts, c->trials, c->n * sizeof *parts);
    /* As a separate evaluation, so that a run that continues finds it and measures nothing twice. */
    CALM_TRY(calm_trials_measure(ctx, p, parts, c->n, &added, p->in.recipe->calib_name, CALM_STAGE_CHOOSE));
    for (size_t i = 0; i < c->n; i++) {
        const calm_measure before = c->trials[i].measure;
        CALM_TRY(calm_measure_join(ctx, &before, c->windows, &parts[i].measure, n_added, &c->trials[i].measure));
    }
    c->windows = end;
    for (size_t i = 0; i < c->n; i++) {
        calm_trial *trial = &c->trials[i];
        if (i)
            calm_measure_compare(&c->trials[0].measure, &trial->measure, end, &trial->delta, &trial->se);
        CALM_TRY(put_joined(ctx, p, c, trial));
    }
    return CALM_OK;
}

calm_status calm_guard_extend(calm_ctx *ctx, calm_run *p, calm_trial *trials, size_t n, size_t *best)
{
    const calm_recipe *recipe = p->in.recipe;
    const size_t windows = p->in.guard_all.n;
    contest c;
    /* With one algorithm there is one plan; with keep_hybrid the decision is made. */
    if (recipe->n_pool < 2 || recipe->keep_hybrid)
        return CALM_OK;
    CALM_TRY(open_contest(ctx, p, trials, n, &c));
    while (c.windows < windows && is_undecided(&c)) {
        drop_others(&c);
        CALM_TRY(measure_on(ctx, p, &c, calm_size_min(2 * c.windows, windows)));
        for (size_t i = 0; i < c.n; i++)
            trials[c.number[i]].more = (calm_trial_more){c.windows, c.trials[i].id, c.trials[i].measure,
                                                         c.trials[i].delta, c.trials[i].se};
        /* Put in each round, also for trials that are dropped later. */
        CALM_TRY(calm_trials_put(ctx, p, c.trials, c.n, "guard_more"));
    }
    *best = c.number[calm_guard_pick(c.trials, c.n)];
    return CALM_OK;
}
