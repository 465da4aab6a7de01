/* Probes: the model with one unit quantized, measured end to end on calibration windows. */
#include <math.h>

#include "ptq/choose/choose_impl.h"

calm_status calm_run_probe_trial(calm_ctx *ctx, const calm_run *p, calm_unit kind, const calm_probe *probe,
                             calm_trial *out)
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    size_t *choice, begin, end;
    char *unit, *name;
    /* Any job of the unit identifies it. */
    calm_layout_unit(layout, kind, probe->job, &begin, &end);
    /* All other units stay float, so that the loss is this unit's. */
    CALM_TRY(calm_choice_uniform(ctx, &p->in, CALM_STAYS_FLOAT, &choice));
    for (size_t job = begin; job < end; job++)
        choice[job] = calm_inputs_keeps(&p->in, job) ? CALM_STAYS_FLOAT : probe->entry;
    CALM_TRY(calm_layout_unit_name(ctx, layout, kind, probe->job, &unit));
    CALM_TRY(calm_strf(ctx, ctx->out, &name, "%s %s", unit, p->in.recipe->pool[probe->entry].name));
    return calm_trial_new(ctx, &p->in, name, choice, out);
}

calm_status calm_run_probe_keep(calm_ctx *ctx, const calm_run *p, calm_unit unit, const calm_probe *probe, int score,
                            double loss)
{
    const calm_point point = calm_unit_point(unit);
    const calm_store_score row = {calm_unit_name(unit), calm_score_name(point, score), loss};
    size_t begin, end;
    calm_layout_unit(calm_model_layout(p->in.model), unit, probe->job, &begin, &end);
    /* The store has scores of candidates, so a unit's score is put for each of its jobs. */
    for (size_t job = begin; job < end; job++) {
        calm_candidate *candidate = calm_candidate_at(&p->in, job, probe->entry);
        if (calm_inputs_keeps(&p->in, job))
            continue;
        candidate->scores.value[point][score] = loss;
        CALM_TRY(calm_store_scores_add(ctx, p->in.store, candidate->id, &row, 1));
    }
    return CALM_OK;
}

/* Measures a group of probes, and releases their trials. */
static calm_status measure_group(calm_ctx *ctx, calm_run *p, calm_unit unit, const calm_probe *probes, size_t n,
                                 const calm_windows *windows, calm_shared_tick *ticks)
{
    calm_trial trials[CALM_SUBJECTS_AT_ONCE];
    /* There are units x entries plans, each with a row per job of the model: together they would need more memory than
     * the model, and for a mixture with thousands of experts many times more. */
    CALM_SCOPED_ARENA(plans);
    CALM_SCOPED_OUT(ctx, &plans);
    for (size_t i = 0; i < n; i++)
        CALM_TRY(calm_run_probe_trial(ctx, p, unit, &probes[i], &trials[i]));
    CALM_TRY(calm_trials_measure_part(ctx, p, trials, n, windows, p->in.recipe->calib_name, ticks));
    /* The evaluations are already in the store; with the scores the next run does not need to read them. */
    CALM_SCOPED_TRANSACTION(ctx, p->in.store);
    for (size_t i = 0; i < n; i++) {
        /* A difference from another unit's probe has no meaning; the loss is already relative to the float model. */
        trials[i].delta = trials[i].se = NAN;
        /* Trials that lack a candidate were not measured and get no score. */
        if (trials[i].id)
            /* For an encoder the loss is 1 - cosine, under the same name. */
            CALM_TRY(calm_run_probe_keep(ctx, p, unit, &probes[i], CALM_SCORE_PROBE_KL,
                                     calm_measure_loss(&trials[i].measure)));
    }
    CALM_TRY(calm_store_commit(ctx, p->in.store));
    return calm_trials_put(ctx, p, trials, n, "probe");
}

/* Marks the codes of all probes that must be measured, so that dropped codes are computed again in one pass instead of
 * one pass per group. */
static calm_status want_all(calm_ctx *ctx, calm_run *p, calm_unit unit, const calm_probe *probes, size_t n,
                            const calm_windows *windows)
{
    for (size_t i = 0; i < n && calm_run_any_dropped(p); i++) {
        CALM_SCOPED_ARENA(plan);
        CALM_SCOPED_OUT(ctx, &plan);
        calm_trial trial;
        CALM_TRY(calm_run_probe_trial(ctx, p, unit, &probes[i], &trial));
        CALM_TRY(calm_run_find_evaluation(ctx, p, trial.key, windows, &trial.measure, &trial.id));
        if (!trial.id)
            calm_recompute_mark(&trial.plan);
    }
    return calm_recompute_marked(ctx, p);
}

/* Measures probes in groups of neighbours: the float model runs once per group, and each probe from its unit's block
 * on. */
static calm_status measure(calm_ctx *ctx, calm_run *p, calm_unit unit, const calm_probe *probes, size_t n,
                           const calm_windows *windows)
{
    calm_stage_events events = {&p->events, CALM_STAGE_PROBE};
    const size_t n_groups = (n + CALM_SUBJECTS_AT_ONCE - 1) / CALM_SUBJECTS_AT_ONCE;
    CALM_TRY(want_all(ctx, p, unit, probes, n, windows));
    for (size_t group = 0, first = 0; first < n; group++, first += CALM_SUBJECTS_AT_ONCE) {
        calm_shared_tick ticks = {calm_stage_tick, &events, (first + group) * windows->n,
                                  (n + n_groups) * windows->n};
        const size_t n_now = calm_size_min(n - first, CALM_SUBJECTS_AT_ONCE);
        CALM_TRY(measure_group(ctx, p, unit, probes + first, n_now, windows, &ticks));
    }
    return CALM_OK;
}

calm_status calm_run_probe(calm_ctx *ctx, calm_run *p, calm_unit unit, const calm_probe *probes, size_t n)
{
    /* Calibration windows, because the guard's must not influence a choice. */
    const size_t most = calm_inputs_probe_windows(&p->in);
    calm_windows windows;
    CALM_TRY(calm_windows_slice(ctx, &p->in.calib, 0, most, &windows));
    if (n)
        CALM_TRY(measure(ctx, p, unit, probes, n, &windows));
    calm_event_complete(&p->events, CALM_STAGE_PROBE);
    return CALM_OK;
}

calm_status calm_run_probe_all(calm_ctx *ctx, calm_run *p, calm_unit unit)
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    calm_probe *probes;
    size_t unit_end = 0, n = 0;
    const size_t n_jobs = calm_inputs_count(&p->in);
    CALM_TRY(CALM_NEW(ctx, ctx->out, probes, n_jobs * p->in.recipe->n_pool));
    for (size_t i = 0; i < n_jobs; i++) {
        const size_t job = calm_inputs_job(&p->in, i);
        size_t begin;
        if (job < unit_end)    /* belongs to the unit before */
            continue;
        calm_layout_unit(layout, unit, job, &begin, &unit_end);
        /* Units x entries runs of the model, which make this score expensive. */
        for (size_t entry = 0; entry < p->in.recipe->n_pool; entry++)
            probes[n++] = (calm_probe){job, entry};
    }
    return calm_run_probe(ctx, p, unit, probes, n);
}
