/* Guard: the hybrid against every uniform run, on windows that calibration did not see. */
#include <math.h>
#include <string.h>

#include "cli/pipeline.h"

/* A uniform run must be better by more than so many paired standard errors. */
#define GUARD_ERRORS 2.0

static void tick(void *user, size_t done, size_t total)
{
    calm_progress_update(((calm_pipeline *)user)->progress, CALM_STAGE_CHOOSE, done, total);
}

/* The hybrid, and each uniform run. */
static calm_status list_trials(calm_ctx *ctx, calm_pipeline *p)
{
    const calm_recipe *recipe = p->recipe;
    p->n_trials = recipe->n_pool + 1;
    CALM_TRY(CALM_NEW(ctx, ctx->out, p->trials, p->n_trials));
    CALM_TRY(calm_trial_new(ctx, p, "hybrid", p->choice, &p->trials[0]));
    for (size_t a = 0; a < recipe->n_pool; a++) {
        size_t *choice;
        CALM_TRY(calm_pipeline_uniform_pinned(ctx, p, a, &choice));
        CALM_TRY(calm_trial_new(ctx, p, recipe->pool[a].name, choice, &p->trials[a + 1]));
        CALM_TRY(calm_trial_constrain(ctx, p, choice, &p->trials[a + 1]));
    }
    return CALM_OK;
}

/* The uniform run that replaces the hybrid, or 0. */
static size_t better_uniform(const calm_trial *trials, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (trials[i].id && trials[i].delta < -GUARD_ERRORS * trials[i].se &&
            (best == 0 || trials[i].eval.kl < trials[best].eval.kl))
            best = i;
    return best;
}

/* A uniform run with the hybrid's candidates, or 0. */
static size_t same_uniform(const calm_trial *trials, size_t n)
{
    size_t same = 0;
    for (size_t i = 1; i < n; i++)
        same = strcmp(trials[i].key, trials[0].key) == 0 ? i : same;
    return same;
}

calm_status calm_guard_judge(calm_ctx *ctx, calm_pipeline *p, calm_trial *trials, size_t n, size_t *result,
                             const char **verdict)
{
    char *text;
    *result = 0;
    *verdict = "no windows were left for the guard: nothing says that the hybrid is better than a uniform run";
    if (!p->guard.n)
        return CALM_OK;
    CALM_TRY(calm_trials_measure(ctx, p, trials, n, &p->guard, p->recipe->calib_name, tick, p));
    CALM_TRY(calm_trials_put(ctx, p, trials, n, "guard"));
    const size_t best = better_uniform(trials, n), same = same_uniform(trials, n), windows = p->guard.n;
    const calm_trial *trial = &trials[best];
    const char *loss = calm_pipeline_encodes(p) ? "1 - cosine" : "KL";
    if (best)
        CALM_TRY(calm_strf(ctx, ctx->out, &text,
                           "uniform %s is better than the hybrid by %.5f %s (%.1f paired standard errors, %zu windows)%s",
                           trial->name, -trial->delta, loss, -trial->delta / trial->se, windows,
                           p->recipe->keep_hybrid ? "; the hybrid is kept as asked (--keep-hybrid)"
                                                  : ", so it is the result"));
    else if (same)
        CALM_TRY(calm_strf(ctx, ctx->out, &text,
                           "every unit%s chose %s, so the hybrid is that uniform run; no other is better by "
                           "more than %g paired standard errors (%zu windows)",
                           p->recipe->n_pins ? " without a pin" : "", trials[same].name, GUARD_ERRORS, windows));
    else
        CALM_TRY(calm_strf(ctx, ctx->out, &text,
                           "no uniform run is better than the hybrid by more than %g paired standard "
                           "errors (%zu windows)", GUARD_ERRORS, windows));
    *verdict = text;
    *result = p->recipe->keep_hybrid ? 0 : best;
    return CALM_OK;
}

calm_status calm_pipeline_guard(calm_ctx *ctx, calm_pipeline *p)
{
    size_t result;
    CALM_TRY(list_trials(ctx, p));
    CALM_TRY(calm_guard_judge(ctx, p, p->trials, p->n_trials, &result, &p->verdict));
    p->result = p->trials[result].plan;
    p->result_name = p->trials[result].name;
    if (p->recipe->n_pool == 1) {
        p->result_name = p->recipe->pool[0].name;
        p->verdict = "one algorithm: a uniform run";
    }
    CALM_TRY(calm_pipeline_say_cost(ctx, p, NULL, &p->verdict));
    calm_progress_finish(p->progress, CALM_STAGE_CHOOSE);
    calm_memory_plan_note(&p->held.evaluate);
    return CALM_OK;
}
