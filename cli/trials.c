/* Plans of a run, and what they measure end to end. */
#include <math.h>
#include <string.h>

#include "cli/run_pool.h"
#include "ptq/hybrid/assemble.h"
#include "ptq/hybrid/qblob.h"
#include "store/blob.h"

/* ---- plans ---- */

/* A blob that was sound when the run began: what happened, and what to do. */
static calm_status explain_damage(calm_ctx *ctx)
{
    char why[CALM_MESSAGE_MAX];
    const calm_status status = ctx->status == CALM_EARG ? CALM_EFORMAT : ctx->status;    /* not a usage error */
    memcpy(why, ctx->message, sizeof why);
    calm_ctx_forgive(ctx);
    return calm_fail(ctx, status, "%s; it was sound before: run the same command again, which computes it anew", why);
}

static calm_status fetch(void *user, calm_ctx *ctx, const calm_plan_job *job, calm_qjob *out)
{
    const calm_pipeline *p = user;
    const calm_candidate *candidate = job->source;
    calm_mapping map;
    if (calm_blob_get(ctx, calm_store_blobs(p->store), candidate->blob, &map) != CALM_OK)
        return explain_damage(ctx);
    const calm_status status = calm_qblob_decode(ctx, candidate->blob, map.data, map.bytes, out);
    calm_unmap_file(&map);
    return status;
}

calm_status calm_pipeline_plan(calm_ctx *ctx, const calm_pipeline *p, const size_t *choice, calm_plan *out)
{
    const size_t n_jobs = calm_model_layout(p->model)->n_jobs;
    *out = (calm_plan){.n_jobs = n_jobs, .free_scales = p->recipe->input_scales != CALM_SCALES_FOLDED, .fetch = fetch,
                       .user = (void *)(uintptr_t)p};
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->jobs, n_jobs));
    for (size_t j = 0; j < n_jobs; j++)
        if (choice[j] != CALM_STAYS_FLOAT)
            out->jobs[j] = (calm_plan_job){.quantized = true,
                                           .scheme = p->recipe->pool[choice[j]].scheme,
                                           .algorithm = p->recipe->pool[choice[j]].name,
                                           .source = calm_pipeline_candidate(p, j, choice[j])};
    return CALM_OK;
}

calm_status calm_pipeline_uniform(calm_ctx *ctx, const calm_pipeline *p, size_t entry, size_t **choice)
{
    const size_t n_jobs = calm_model_layout(p->model)->n_jobs;
    size_t first, end;
    calm_pipeline_jobs(p, &first, &end);
    CALM_TRY(CALM_NEW(ctx, ctx->out, *choice, n_jobs));
    for (size_t j = 0; j < n_jobs; j++)
        (*choice)[j] = j >= first && j < end ? entry : CALM_STAYS_FLOAT;
    return CALM_OK;
}

calm_status calm_trial_constrain(calm_ctx *ctx, const calm_pipeline *p, const size_t *choice, calm_trial *trial)
{
    size_t first, end;
    char name[CALM_SCHEME_NAME_MAX], *lacks;
    calm_pipeline_jobs(p, &first, &end);
    for (size_t job = first; job < end && !trial->lacks; job++) {
        if (choice[job] == CALM_STAYS_FLOAT || calm_run_takes(p, job, p->recipe->pool[choice[job]].of_scheme))
            continue;
        calm_scheme_name(&p->recipe->pool[choice[job]].scheme, name);
        CALM_TRY(calm_strf(ctx, ctx->out, &lacks, "%s: %s does not take %s there",
                           calm_model_layout(p->model)->jobs[job].name, p->scope.limits.asks, name));
        trial->lacks = lacks;
    }
    return CALM_OK;
}

double calm_pipeline_weights(const calm_pipeline *p, size_t first, size_t end, bool active)
{
    const calm_layout *layout = calm_model_layout(p->model);
    const calm_moe_config *moe = &calm_model_config(p->model)->moe;
    double total = 0;
    for (size_t j = first; j < end; j++) {
        const calm_job_ref *job = &layout->jobs[j];
        const double share = active && job->expert >= 0 ? (double)moe->top_k / (double)moe->n_experts : 1;
        total += share * (double)job->out * (double)job->in;
    }
    return total;
}

double calm_pipeline_job_bits(const calm_pipeline *p, size_t job, const calm_scheme *scheme)
{
    const calm_layout *layout = calm_model_layout(p->model);
    const calm_job_ref *ref = &layout->jobs[job];
    double bits = 0;
    for (size_t i = ref->first; i < ref->first + ref->n; i++) {
        const calm_linear_ref *linear = &layout->linears[i];
        bits += calm_scheme_bits_per_weight(scheme, linear->out, linear->in) * (double)linear->out * (double)linear->in;
    }
    return bits;
}

double calm_pipeline_plan_bits(const calm_pipeline *p, const calm_plan *plan)
{
    const calm_layout *layout = calm_model_layout(p->model);
    double bits = 0, weights = 0;
    for (size_t j = 0; j < plan->n_jobs; j++)
        if (plan->jobs[j].quantized) {
            bits += calm_pipeline_job_bits(p, j, &plan->jobs[j].scheme);
            weights += (double)layout->jobs[j].out * (double)layout->jobs[j].in;
        }
    return weights > 0 ? bits / weights : NAN;
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

/* ---- trials ---- */

calm_status calm_trial_new(calm_ctx *ctx, const calm_pipeline *p, const char *name, const size_t *choice,
                           calm_trial *out)
{
    *out = (calm_trial){.name = name, .delta = NAN, .se = NAN};
    CALM_TRY(calm_pipeline_plan(ctx, p, choice, &out->plan));
    for (size_t j = 0; j < out->plan.n_jobs && !out->lacks; j++) {
        const calm_candidate *candidate = out->plan.jobs[j].source;
        char *lacks;
        if (!out->plan.jobs[j].quantized || !candidate->failure)
            continue;
        CALM_TRY(calm_strf(ctx, ctx->out, &lacks, "%s: %s", calm_model_layout(p->model)->jobs[j].name, candidate->failure));
        out->lacks = lacks;
    }
    out->bits_per_weight = calm_pipeline_plan_bits(p, &out->plan);
    return calm_pipeline_plan_key(ctx, &out->plan, out->key);
}

/* The trial before `i` with the same plan, or i. */
static size_t same_as(const calm_trial *trials, size_t i)
{
    for (size_t j = 0; j < i; j++)
        if (!trials[j].lacks && strcmp(trials[j].key, trials[i].key) == 0)
            return j;
    return i;
}

/* Ticks of a group of trials as those of one measurement. */
typedef struct group_tick {
    calm_tick_fn *fn;
    void *user;
    size_t before, total;
} group_tick;

static void tick_group(void *user, size_t done, size_t total)
{
    const group_tick *group = user;
    (void)total;
    if (group->fn)
        group->fn(group->user, group->before + done, group->total);
}

/* Measure trials of[0 .. n) together and keep what they gave. */
static calm_status measure_group(calm_ctx *ctx, const calm_pipeline *p, calm_trial *trials, const size_t *of, size_t n,
                                 const calm_windows *windows, const char *text_name, group_tick *ticks)
{
    calm_plan_override overrides[CALM_TRIALS_AT_ONCE];
    calm_subject subjects[CALM_TRIALS_AT_ONCE];
    calm_eval_result results[CALM_TRIALS_AT_ONCE];
    for (size_t i = 0; i < n; i++) {
        overrides[i] = (calm_plan_override){p->model, &trials[of[i]].plan};
        subjects[i] = (calm_subject){p->model, calm_plan_apply, &overrides[i]};
    }
    CALM_TRY(calm_pipeline_measure(ctx, p, NULL, subjects, n, results, NULL, windows, tick_group, ticks));
    ticks->before += (n + 1) * windows->n;
    for (size_t i = 0; i < n; i++) {
        calm_trial *trial = &trials[of[i]];
        trial->eval = results[i];
        CALM_TRY(calm_pipeline_put_evaluation(ctx, p, trial->key, trial->name, text_name, windows, &trial->eval,
                                              &trial->id));
    }
    return CALM_OK;
}

/* Numbers of the trials that have to be measured, in order; *n how many. */
static calm_status list_unknown(calm_ctx *ctx, const calm_pipeline *p, calm_trial *trials, size_t n,
                                const calm_windows *windows, size_t *of, size_t *n_unknown)
{
    *n_unknown = 0;
    for (size_t i = 0; i < n; i++) {
        if (trials[i].lacks || same_as(trials, i) != i)
            continue;
        CALM_TRY(calm_pipeline_find_evaluation(ctx, p, trials[i].key, windows, &trials[i].eval, &trials[i].id));
        if (!trials[i].id)
            of[(*n_unknown)++] = i;
    }
    return CALM_OK;
}

calm_status calm_trials_measure(calm_ctx *ctx, const calm_pipeline *p, calm_trial *trials, size_t n,
                                const calm_windows *windows, const char *text_name, calm_tick_fn *tick, void *user)
{
    size_t *of, n_unknown;
    group_tick ticks = {tick, user, 0, 0};
    CALM_TRY(CALM_NEW(ctx, ctx->out, of, n ? n : 1));
    CALM_TRY(list_unknown(ctx, p, trials, n, windows, of, &n_unknown));
    const size_t n_groups = (n_unknown + CALM_TRIALS_AT_ONCE - 1) / CALM_TRIALS_AT_ONCE;
    ticks.total = (n_unknown + n_groups) * windows->n;
    for (size_t first = 0; first < n_unknown; first += CALM_TRIALS_AT_ONCE) {
        const size_t left = n_unknown - first;
        CALM_TRY(measure_group(ctx, p, trials, of + first, left < CALM_TRIALS_AT_ONCE ? left : CALM_TRIALS_AT_ONCE,
                               windows, text_name, &ticks));
    }
    for (size_t i = 0; i < n; i++) {
        const size_t same = trials[i].lacks ? i : same_as(trials, i);
        trials[i].eval = trials[same].eval;
        trials[i].id = trials[same].id;
        if (i && trials[i].id && trials[0].id)
            calm_eval_compare(&trials[0].eval, &trials[i].eval, windows->n, &trials[i].delta, &trials[i].se);
    }
    return CALM_OK;
}

calm_status calm_trials_put(calm_ctx *ctx, const calm_pipeline *p, const calm_trial *trials, size_t n, const char *role)
{
    CALM_TRY(calm_store_begin(ctx, p->store));
    for (size_t i = 0; i < n; i++) {
        const calm_store_verdict verdict = {p->run_id, trials[i].id, role, trials[i].name, trials[i].delta, trials[i].se};
        if (trials[i].id)
            CALM_TRY(calm_store_verdict_put(ctx, p->store, &verdict));
    }
    return calm_store_commit(ctx, p->store);
}
