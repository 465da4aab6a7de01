/* Choice per job, and the guard: the hybrid against every uniform run on windows that calibration did not see. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/pipeline.h"
#include "ptq/hybrid/assemble.h"
#include "ptq/hybrid/qblob.h"
#include "store/blob.h"

/* "smooth iff crest > 6" chose as CKA did in 23 of 24 jobs at W4A4 (docs/method.md section 5). */
#define SMOOTH_CREST 6.0
/* A uniform run must be better by more than so many paired standard errors. */
#define GUARD_ERRORS 2.0

/* ---- plans ---- */

static calm_status fetch(void *user, calm_ctx *ctx, const calm_plan_job *job, calm_qjob *out)
{
    const calm_pipeline *p = user;
    const calm_candidate *candidate = job->source;
    calm_mapping map;
    CALM_TRY(calm_blob_get(ctx, calm_store_blobs(p->store), candidate->blob, &map));
    const calm_status status = calm_qblob_decode(ctx, candidate->blob, map.data, map.bytes, out);
    calm_unmap_file(&map);
    return status;
}

calm_status calm_pipeline_plan(calm_ctx *ctx, const calm_pipeline *p, long uniform, calm_plan *out)
{
    const size_t n_jobs = calm_model_layout(p->model)->n_jobs;
    size_t first, end;
    calm_pipeline_jobs(p, &first, &end);
    *out = (calm_plan){.n_jobs = n_jobs, .fetch = fetch, .user = (void *)(uintptr_t)p};
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->jobs, n_jobs));
    for (size_t j = first; j < end; j++) {
        const size_t a = uniform >= 0 ? (size_t)uniform : p->choice[j];
        out->jobs[j] = (calm_plan_job){.quantized = true,
                                       .scheme = p->recipe->scheme,
                                       .algorithm = calm_algorithm_name(p->recipe->algorithms[a]),
                                       .source = calm_pipeline_candidate(p, j, a)};
    }
    return CALM_OK;
}

calm_status calm_pipeline_plan_key(calm_ctx *ctx, const calm_plan *plan, char key[CALM_SHA256_HEX])
{
    calm_sha256 sha;
    calm_sha256_init(&sha);
    calm_sha256_field(&sha, "calm-plan-1");
    for (size_t i = 0; i < plan->n_jobs; i++)
        calm_sha256_field(&sha,
                          plan->jobs[i].quantized ? ((const calm_candidate *)plan->jobs[i].source)->key : "float");
    return calm_sha256_finish(ctx, &sha, key);
}

/* ---- choice ---- */

/* Crest of a job's input, NaN when the store does not know. */
static double job_crest(calm_ctx *ctx, const calm_pipeline *p, int64_t job_id)
{
    static const char sql[] = "SELECT x.crest_median FROM activation x JOIN job j ON j.input_hook = x.hook "
                              "WHERE j.id = ?1 AND x.model_id = ?2 AND x.calibration_id = ?3";
    const calm_value params[] = {calm_value_int(job_id), calm_value_int(p->model_id),
                                 calm_value_int(p->calibration_id)};
    calm_value value;
    if (calm_store_query_one(ctx, p->store, sql, params, 3, &value, 1) != CALM_OK) {
        calm_ctx_forgive(ctx);
        return NAN;
    }
    return value.type == CALM_VALUE_REAL ? value.real : NAN;
}

/* The activation rule speaks where activations are quantized and a smoothing candidate competes. */
static const char *advise(calm_ctx *ctx, const calm_pipeline *p, int64_t job_id)
{
    if (!(calm_recipe_caps(p->recipe) & CALM_SETS_IN_SCALE) || !p->recipe->scheme.act_bits)
        return NULL;
    const double crest = job_crest(ctx, p, job_id);
    return isnan(crest) ? NULL : crest > SMOOTH_CREST ? "smooth" : "plain";
}

/* A job whose candidates could not be scored: an expert that no scoring token was routed to. */
static calm_status choose_blindly(calm_ctx *ctx, const calm_pipeline *p, size_t job, size_t *out, char **reason)
{
    *out = 0;
    while (*out + 1 < p->recipe->n_algorithms && calm_pipeline_candidate(p, job, *out)->failure)
        ++*out;
    if (calm_pipeline_candidate(p, job, *out)->failure)
        return calm_fail(ctx, CALM_ENUMERIC, "%s: every candidate failed: %s",
                         calm_model_layout(p->model)->jobs[job].name, calm_pipeline_candidate(p, job, *out)->failure);
    return calm_strf(ctx, ctx->out, reason,
                     "too few scoring tokens were routed to this expert to compare: the first of the list");
}

static calm_status choose_job(calm_ctx *ctx, calm_pipeline *p, size_t index)
{
    const calm_recipe *recipe = p->recipe;
    calm_contender *contenders;
    char *reason;
    bool scored = false;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, contenders, recipe->n_algorithms));
    for (size_t a = 0; a < recipe->n_algorithms; a++) {
        const calm_candidate *candidate = calm_pipeline_candidate(p, index, a);
        contenders[a] = (calm_contender){candidate->key, calm_algorithm_name(recipe->algorithms[a]), candidate->failure,
                                         candidate->score[recipe->metric], candidate->score[CALM_METRIC_LOG_REL_MSE]};
        scored |= candidate->scored;
    }
    if (scored)
        CALM_TRY(calm_choose(ctx, recipe->rule, calm_metric_name(recipe->metric), contenders, recipe->n_algorithms,
                             &p->choice[index], &reason));
    else
        CALM_TRY(choose_blindly(ctx, p, index, &p->choice[index], &reason));
    const char *advice = advise(ctx, p, p->job_ids[index]);
    const bool smooth = calm_algorithm_caps(recipe->algorithms[p->choice[index]]) & CALM_SETS_IN_SCALE;
    const calm_store_choice choice = {.run_id = p->run_id,
                                      .job_id = p->job_ids[index],
                                      .unit = calm_model_layout(p->model)->jobs[index].name,
                                      .reason = reason,
                                      .candidate_id = calm_pipeline_candidate(p, index, p->choice[index])->id,
                                      .advice = advice,
                                      .disagrees = advice && smooth != (strcmp(advice, "smooth") == 0)};
    return calm_store_choice_put(ctx, p->store, &choice);
}

static calm_status choose_all(calm_ctx *ctx, calm_pipeline *p)
{
    size_t first, end;
    calm_pipeline_jobs(p, &first, &end);
    CALM_TRY(calm_store_begin(ctx, p->store));
    for (size_t job = first; job < end; job++)
        CALM_TRY(choose_job(ctx, p, job));
    return calm_store_commit(ctx, p->store);
}

/* ---- guard ---- */

typedef struct guard {
    calm_pipeline *p;
    calm_plan *plans;                     /* [n] the hybrid first */
    char (*keys)[CALM_SHA256_HEX];
    int64_t *ids;                         /* evaluation rows; 0: to be measured */
    calm_plan_override *overrides;
    size_t n;
} guard;

/* Plans that can be measured: the hybrid, and each uniform run without a failed job. */
static calm_status list_plans(calm_ctx *ctx, guard *g)
{
    calm_pipeline *p = g->p;
    const size_t most = p->recipe->n_algorithms + 1;
    CALM_TRY(CALM_NEW(ctx, ctx->out, g->plans, most));
    CALM_TRY(CALM_NEW(ctx, ctx->out, g->keys, most));
    CALM_TRY(CALM_NEW(ctx, ctx->out, g->ids, most));
    CALM_TRY(CALM_NEW(ctx, ctx->out, g->overrides, most));
    CALM_TRY(CALM_NEW(ctx, ctx->out, p->guard_rows, most));
    p->guard_rows[0] = (calm_guard_row){.name = "hybrid", .complete = true};
    CALM_TRY(calm_pipeline_plan(ctx, p, -1, &g->plans[0]));
    for (size_t a = 0; a + 1 < most; a++) {
        calm_guard_row *row = &p->guard_rows[a + 1];
        *row = (calm_guard_row){.name = calm_algorithm_name(p->recipe->algorithms[a]), .complete = true};
        CALM_TRY(calm_pipeline_plan(ctx, p, (long)a, &g->plans[a + 1]));
        for (size_t i = 0; i < g->plans[a + 1].n_jobs; i++)
            if (g->plans[a + 1].jobs[i].quantized)
                row->complete &= ((const calm_candidate *)g->plans[a + 1].jobs[i].source)->failure == NULL;
    }
    for (size_t i = 0; i < most; i++) {
        CALM_TRY(calm_pipeline_plan_key(ctx, &g->plans[i], g->keys[i]));
        g->overrides[i] = (calm_plan_override){p->model, &g->plans[i]};
    }
    g->n = p->n_guard_rows = most;
    return CALM_OK;
}

static void tick(void *user, size_t done, size_t total)
{
    calm_progress_update(((calm_pipeline *)user)->progress, CALM_STAGE_CHOOSE, done, total);
}

/* Measure together what the store does not have; plans with the same candidates are measured once. */
static calm_status measure(calm_ctx *ctx, guard *g)
{
    calm_pipeline *p = g->p;
    calm_subject *subjects;
    calm_eval_result *results;
    size_t *row_of, n = 0;
    CALM_TRY(CALM_NEW(ctx, ctx->out, subjects, g->n));
    CALM_TRY(CALM_NEW(ctx, ctx->out, results, g->n));
    CALM_TRY(CALM_NEW(ctx, ctx->out, row_of, g->n));
    for (size_t i = 0; i < g->n; i++) {
        bool known = !p->guard_rows[i].complete;
        for (size_t j = 0; j < i && !known; j++)
            known = strcmp(g->keys[i], g->keys[j]) == 0;
        if (!known)
            CALM_TRY(calm_pipeline_find_evaluation(ctx, p, g->keys[i], &p->guard, &p->guard_rows[i].eval, &g->ids[i]));
        if (known || g->ids[i])
            continue;
        subjects[n] = (calm_subject){p->model, calm_plan_apply, &g->overrides[i]};
        row_of[n++] = i;
    }
    if (n)
        CALM_TRY(calm_pipeline_measure(ctx, p, NULL, subjects, n, results, NULL, &p->guard, tick, p));
    for (size_t i = 0; i < n; i++) {
        calm_guard_row *row = &p->guard_rows[row_of[i]];
        row->eval = results[i];
        CALM_TRY(calm_pipeline_put_evaluation(ctx, p, g->keys[row_of[i]], row->name, p->recipe->calib_name, &p->guard,
                                              &row->eval, &g->ids[row_of[i]]));
    }
    for (size_t i = 0; i < g->n; i++)
        for (size_t j = 0; j < i && p->guard_rows[i].complete && !g->ids[i]; j++)
            if (g->ids[j] && strcmp(g->keys[i], g->keys[j]) == 0) {
                p->guard_rows[i].eval = p->guard_rows[j].eval;
                g->ids[i] = g->ids[j];
            }
    return CALM_OK;
}

static calm_status put_verdicts(calm_ctx *ctx, guard *g)
{
    calm_pipeline *p = g->p;
    CALM_TRY(calm_store_begin(ctx, p->store));
    for (size_t i = 0; i < g->n; i++) {
        calm_guard_row *row = &p->guard_rows[i];
        row->delta = row->se = NAN;
        if (!row->complete)
            continue;
        if (i)
            calm_eval_compare(&p->guard_rows[0].eval, &row->eval, p->guard.n, &row->delta, &row->se);
        const calm_store_verdict verdict = {p->run_id, g->ids[i], "guard", row->name, row->delta, row->se};
        CALM_TRY(calm_store_verdict_put(ctx, p->store, &verdict));
    }
    return calm_store_commit(ctx, p->store);
}

/* The uniform run that replaces the hybrid, or 0. */
static size_t better_uniform(const calm_pipeline *p)
{
    size_t best = 0;
    for (size_t i = 1; i < p->n_guard_rows; i++) {
        const calm_guard_row *row = &p->guard_rows[i];
        if (row->complete && row->delta < -GUARD_ERRORS * row->se &&
            (best == 0 || row->eval.kl < p->guard_rows[best].eval.kl))
            best = i;
    }
    return best;
}

static calm_status judge(calm_ctx *ctx, calm_pipeline *p, guard *g)
{
    const size_t best = better_uniform(p);
    const calm_guard_row *row = &p->guard_rows[best];
    char *verdict;
    size_t same = 0;    /* the uniform run with the hybrid's candidates */
    for (size_t i = 1; i < g->n; i++)
        same = strcmp(g->keys[i], g->keys[0]) == 0 ? i : same;
    const size_t result = p->recipe->keep_hybrid ? 0 : best;
    if (best)
        CALM_TRY(calm_strf(ctx, ctx->out, &verdict,
                           "uniform %s is better than the hybrid by %.5f KL (%.1f paired standard "
                           "errors, %zu windows)%s",
                           row->name, -row->delta, -row->delta / row->se, p->guard.n,
                           p->recipe->keep_hybrid ? "; the hybrid is kept as asked (--keep-hybrid)"
                                                  : ", so it is the result"));
    else if (same)
        CALM_TRY(calm_strf(ctx, ctx->out, &verdict,
                           "every unit chose %s, so the hybrid is that uniform run; no other is better by "
                           "more than %g paired standard errors (%zu windows)",
                           p->guard_rows[same].name, GUARD_ERRORS, p->guard.n));
    else
        CALM_TRY(calm_strf(ctx, ctx->out, &verdict,
                           "no uniform run is better than the hybrid by more than %g paired standard "
                           "errors (%zu windows)",
                           GUARD_ERRORS, p->guard.n));
    p->verdict = verdict;
    p->result_name = p->guard_rows[result].name;
    p->result = g->plans[result];
    return CALM_OK;
}

calm_status calm_pipeline_choose(calm_ctx *ctx, calm_pipeline *p)
{
    guard g = {.p = p};
    calm_budget_note(&p->held.capture);
    CALM_TRY(choose_all(ctx, p));
    CALM_TRY(list_plans(ctx, &g));
    p->hybrid = p->result = g.plans[0];
    p->result_name = "hybrid";
    p->verdict = "no windows were left for the guard: nothing says that the hybrid is better than a uniform run";
    if (p->guard.n) {
        CALM_TRY(measure(ctx, &g));
        CALM_TRY(put_verdicts(ctx, &g));
        CALM_TRY(judge(ctx, p, &g));
    }
    if (p->recipe->n_algorithms == 1) {
        p->result_name = calm_algorithm_name(p->recipe->algorithms[0]);
        p->verdict = "one algorithm: a uniform run";
    }
    calm_progress_finish(p->progress, CALM_STAGE_CHOOSE);
    calm_budget_note(&p->held.evaluate);
    return CALM_OK;
}
