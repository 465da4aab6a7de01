/* Choice per unit from stored scores. */
#include <math.h>
#include <string.h>

#include "cli/pipeline.h"
#include "cli/solve.h"

/* ---- the activation rule ---- */

double calm_pipeline_crest(calm_ctx *ctx, const calm_pipeline *p, size_t job)
{
    static const char sql[] = "SELECT x.crest_median FROM activation x JOIN job j ON j.input_hook = x.hook "
                              "WHERE j.id = ?1 AND x.model_id = ?2 AND x.calibration_id = ?3";
    const calm_value params[] = {calm_value_int(p->job_ids[job]), calm_value_int(p->model_id),
                                 calm_value_int(p->calibration_id)};
    calm_value value;
    if (calm_store_query_one(ctx, p->store, sql, params, 3, &value, 1) != CALM_OK) {
        calm_ctx_forgive(ctx);
        return NAN;
    }
    return value.type == CALM_VALUE_REAL ? value.real : NAN;
}

/* The rule speaks where activations are quantized and a smoothing candidate competes. */
static const char *advise(calm_ctx *ctx, const calm_pipeline *p, size_t job, const calm_scheme *scheme)
{
    if (!(calm_recipe_caps(p->recipe) & CALM_SETS_IN_SCALE) || !scheme->act_bits)
        return NULL;
    return calm_pick_advice(calm_pipeline_crest(ctx, p, job));
}

/* ---- one unit ---- */

/* Why an entry cannot be had for jobs begin .. end - 1; NULL: it can. */
static const char *failure_of(const calm_pipeline *p, size_t begin, size_t end, size_t entry)
{
    const char *failure = NULL;
    for (size_t job = begin; job < end && !failure; job++)
        failure = calm_pipeline_candidate(p, job, entry)->failure;
    return failure;
}

/* What a pin says is taken without comparing. */
static calm_status select_pinned(calm_ctx *ctx, const calm_pipeline *p, size_t begin, size_t end, size_t *entry,
                                 char **reason)
{
    *entry = calm_pipeline_pinned(p, begin);
    const char *failure = failure_of(p, begin, end, *entry);
    if (failure)
        return calm_fail(ctx, CALM_ENUMERIC, "%s: the pinned candidate %s failed: %s",
                         calm_model_layout(p->model)->jobs[begin].name, p->recipe->pool[*entry].name, failure);
    return calm_strf(ctx, ctx->out, reason, "pinned by the recipe");
}

/* What helps where no candidate has the score. */
static calm_status say_remedy(calm_ctx *ctx, const calm_pipeline *p, char **out)
{
    const calm_windows *calib = &p->calib;
    const size_t windows = (size_t)p->recipe->score_windows < calib->n ? (size_t)p->recipe->score_windows : calib->n;
    return calm_strf(ctx, ctx->scratch, out, "%zu rows were scored (--score-samples, --seqlen), it needs at least 4",
                     calib->begin[windows]);
}

calm_status calm_pipeline_select(calm_ctx *ctx, const calm_pipeline *p, const calm_selection *selection, size_t job,
                                 size_t first, size_t n, size_t *entry, char **reason)
{
    const calm_layout *layout = calm_model_layout(p->model);
    calm_contender *contenders;
    calm_pick pick = {.rule = selection->rule, .metric = calm_score_name(selection->point, selection->score)};
    char *remedy;
    size_t begin, end, winner;
    calm_layout_unit(layout, selection->unit, job, &begin, &end);
    const size_t pin = calm_pipeline_pinned(p, begin);
    if (pin >= first && pin - first < n)
        return select_pinned(ctx, p, begin, end, entry, reason);
    CALM_TRY(say_remedy(ctx, p, &remedy));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, contenders, n));
    for (size_t i = 0; i < n; i++) {
        const calm_candidate *candidate = calm_pipeline_candidate(p, begin, first + i);
        const double *score = candidate->scores.value[selection->point];
        contenders[i] = (calm_contender){candidate->key, p->recipe->pool[first + i].name,
                                         failure_of(p, begin, end, first + i), score[selection->score],
                                         score[CALM_METRIC_LOG_REL_MSE]};
    }
    pick.unit = layout->jobs[begin].name;
    pick.expert = layout->jobs[begin].expert >= 0 && selection->unit != CALM_UNIT_BLOCK;
    pick.remedy = remedy;
    CALM_TRY(calm_pick_one(ctx, &pick, contenders, n, &winner, reason));
    *entry = first + winner;
    return CALM_OK;
}

calm_status calm_pipeline_select_all(calm_ctx *ctx, const calm_pipeline *p, const calm_selection *selection,
                                     size_t first, size_t end, size_t *choice, const char **reasons)
{
    for (size_t job = first, unit_end; job < end; job = unit_end) {
        size_t begin, entry;
        char *reason;
        calm_layout_unit(calm_model_layout(p->model), selection->unit, job, &begin, &unit_end);
        CALM_TRY(calm_pipeline_select(ctx, p, selection, job, 0, p->recipe->n_pool, &entry, &reason));
        for (size_t j = begin; j < unit_end; j++) {
            choice[j] = entry;
            if (reasons)
                reasons[j] = reason;
        }
    }
    return CALM_OK;
}

/* ---- all units, into the store ---- */

calm_status calm_pipeline_put_choice(calm_ctx *ctx, const calm_pipeline *p, size_t job, const char *reason)
{
    const calm_entry *entry = &p->recipe->pool[p->choice[job]];
    const char *advice = advise(ctx, p, job, &entry->scheme);
    const bool smooth = calm_algorithm_caps(entry->algorithm) & CALM_SETS_IN_SCALE;
    char *unit;
    CALM_TRY(calm_layout_unit_name(ctx, calm_model_layout(p->model), p->recipe->selection.unit, job, &unit));
    const calm_store_choice choice = {.run_id = p->run_id,
                                      .job_id = p->job_ids[job],
                                      .unit = unit,
                                      .reason = reason,
                                      .candidate_id = calm_pipeline_candidate(p, job, p->choice[job])->id,
                                      .advice = advice,
                                      .disagrees = advice && smooth != (strcmp(advice, "smooth") == 0)};
    return calm_store_choice_put(ctx, p->store, &choice);
}

calm_status calm_pipeline_choose(calm_ctx *ctx, calm_pipeline *p)
{
    const char **reasons;
    size_t first, end;
    calm_memory_plan_note(&p->held.capture);
    calm_pipeline_jobs(p, &first, &end);
    CALM_TRY(CALM_NEW(ctx, ctx->out, reasons, calm_model_layout(p->model)->n_jobs));
    CALM_TRY(calm_pipeline_select_all(ctx, p, &p->recipe->selection, first, end, p->choice, reasons));
    CALM_TRY(calm_store_begin(ctx, p->store));
    for (size_t job = first; job < end; job++)
        CALM_TRY(calm_pipeline_put_choice(ctx, p, job, reasons[job]));
    return calm_store_commit(ctx, p->store);
}
