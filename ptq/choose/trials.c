/* Trials: measures choices for every job end to end. */
#include <string.h>

#include "ptq/plan/assemble.h"
#include "ptq/choose/choose_impl.h"
#include "ptq/state/run_pool.h"

calm_status calm_trial_constrain(calm_ctx *ctx, const calm_run *p, const size_t *choice, calm_trial *trial)
{
    size_t first, end;
    calm_inputs_jobs(&p->in, &first, &end);
    for (size_t job = first; job < end && !trial->missing; job++) {
        /* Every target runs float weights. */
        if (choice[job] == CALM_STAYS_FLOAT || calm_run_takes(p, job, p->in.recipe->pool[choice[job]].of_scheme))
            continue;
        const char *name = CALM_SCHEME_NAME(&p->in.recipe->pool[choice[job]].scheme);
        CALM_TRY(calm_strf(ctx, ctx->out, &trial->missing, "%s: %s does not take %s there",
                           calm_model_layout(p->in.model)->jobs[job].name, p->scope.limits.asks, name));
    }
    return CALM_OK;
}

/* Returns the first trial with the same plan as trial `i`. */
static size_t same_as(const calm_trial *trials, size_t i)
{
    /* Uniform runs often equal the hybrid, and measuring them again would be expensive. */
    for (size_t j = 0; j < i; j++)
        if (!trials[j].missing && strcmp(trials[j].key, trials[i].key) == 0)
            return j;
    return i;
}

/* Returns the first block that a plan quantizes; before it, the quantized model equals the float model. */
static size_t first_block(const calm_run *p, const calm_plan *plan)
{
    size_t job = 0;
    while (job < plan->n_jobs && !plan->jobs[job].quantized)
        job++;
    return job < plan->n_jobs ? calm_model_layout(p->in.model)->jobs[job].block : 0;
}

/* Measures trials of[0 .. n) together and puts the evaluations. */
static calm_status measure_group(calm_ctx *ctx, const calm_run *p, calm_trial *trials, const size_t *of, size_t n,
                                 const calm_windows *windows, const char *text_name, calm_shared_tick *ticks)
{
    calm_plan_override overrides[CALM_SUBJECTS_AT_ONCE];
    calm_subject subjects[CALM_SUBJECTS_AT_ONCE];
    calm_measure measures[CALM_SUBJECTS_AT_ONCE];
    for (size_t i = 0; i < n; i++) {
        overrides[i] = (calm_plan_override){p->in.model, &trials[of[i]].plan};
        subjects[i] = (calm_subject){.model = p->in.model, .override = calm_plan_apply, .user = &overrides[i],
                                     .first_block = first_block(p, &trials[of[i]].plan)};
        calm_guard_rows_of(p, trials[of[i]].key, windows, &subjects[i]);
    }
    /* Together, because each measurement also runs the float model. */
    CALM_TRY(calm_run_measure(ctx, p, NULL, subjects, n, measures, windows, calm_tick_shared, ticks));
    ticks->before += (n + 1) * windows->n;
    for (size_t i = 0; i < n; i++) {
        calm_trial *trial = &trials[of[i]];
        /* Put at once, so that a killed run keeps the earlier groups. */
        trial->measure = measures[i];
        CALM_TRY(calm_run_put_evaluation(ctx, p, trial->key, trial->name, text_name, windows, &trial->measure,
                                         &trial->id));
    }
    return CALM_OK;
}

/* Lists the numbers of the trials that must be measured, in order. */
static calm_status list_unknown(calm_ctx *ctx, const calm_run *p, calm_trial *trials, size_t n,
                                const calm_windows *windows, size_t *of, size_t *n_unknown)
{
    *n_unknown = 0;
    for (size_t i = 0; i < n; i++) {
        /* An equal plan gets the figures of its first occurrence at the end. */
        if (trials[i].missing || same_as(trials, i) != i)
            continue;
        CALM_TRY(calm_run_find_evaluation(ctx, p, trials[i].key, windows, &trials[i].measure, &trials[i].id));
        if (!trials[i].id)
            of[(*n_unknown)++] = i;
    }
    return CALM_OK;
}

calm_status calm_trials_measure_part(calm_ctx *ctx, calm_run *p, calm_trial *trials, size_t n,
                                     const calm_windows *windows, const char *text_name, calm_shared_tick *ticks)
{
    size_t *of, n_unknown;
    CALM_TRY(CALM_NEW(ctx, ctx->out, of, n ? n : 1));
    CALM_TRY(list_unknown(ctx, p, trials, n, windows, of, &n_unknown));
    if (n_unknown)
        CALM_TRY(calm_guard_rows_recompute(ctx, p, trials, of, n_unknown, windows));
    /* Each group also runs the float model, which counts in the total. */
    const size_t n_groups = (n_unknown + CALM_SUBJECTS_AT_ONCE - 1) / CALM_SUBJECTS_AT_ONCE;
    if (!ticks->total)
        ticks->total = (n_unknown + n_groups) * windows->n;
    for (size_t first = 0; first < n_unknown; first += CALM_SUBJECTS_AT_ONCE) {
        const size_t n_now = calm_size_min(n_unknown - first, CALM_SUBJECTS_AT_ONCE);
        CALM_TRY(measure_group(ctx, p, trials, of + first, n_now, windows, text_name, ticks));
    }
    calm_guard_rows_remove(ctx, p);    /* they belonged to these windows */
    for (size_t i = 0; i < n; i++) {
        const size_t same = trials[i].missing ? i : same_as(trials, i);
        /* Only now, because all differences are from the first trial, which may have been measured just now. */
        trials[i].measure = trials[same].measure;
        trials[i].id = trials[same].id;
        if (i && trials[i].id && trials[0].id)
            calm_measure_compare(&trials[0].measure, &trials[i].measure, windows->n, &trials[i].delta,
                                 &trials[i].se);
    }
    return CALM_OK;
}

calm_status calm_trials_measure(calm_ctx *ctx, calm_run *p, calm_trial *trials, size_t n,
                                const calm_windows *windows, const char *text_name, calm_stage stage)
{
    calm_stage_events events = {&p->events, stage};
    calm_shared_tick ticks = {calm_stage_tick, &events, 0, 0};
    return calm_trials_measure_part(ctx, p, trials, n, windows, text_name, &ticks);
}

calm_status calm_trials_put(calm_ctx *ctx, const calm_run *p, const calm_trial *trials, size_t n, const char *role)
{
    CALM_SCOPED_TRANSACTION(ctx, p->in.store);
    for (size_t i = 0; i < n; i++) {
        /* Trials that were not measured get no row. */
        const calm_store_verdict verdict = {p->result.run_id, trials[i].id,    role,
                                            trials[i].name,   trials[i].delta, trials[i].se};
        if (trials[i].id)
            CALM_TRY(calm_store_verdict_put(ctx, p->in.store, &verdict));
    }
    return calm_store_commit(ctx, p->in.store);
}
