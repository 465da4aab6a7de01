/* Plans: the candidate of each job, where its codes are, and its bits.
 *
 * A plan contains no codes.  They are read from the store one job at a time when the plan is assembled, measured or
 * exported. */
#include <math.h>
#include <string.h>

#include "ptq/quant/qblob.h"
#include "ptq/state/inputs.h"
#include "store/blob.h"

/* Explains that a blob was damaged during the run, and what the user can do. */
static calm_status explain_damage(calm_ctx *ctx)
{
    char why[CALM_MESSAGE_MAX];
    const calm_status status = ctx->status == CALM_EARG ? CALM_EFORMAT : ctx->status;    /* not a usage error */
    memcpy(why, ctx->message, sizeof why);
    calm_ctx_clear_failure(ctx);
    return calm_fail(ctx, status, "%s; it was sound before: run the same command again, which computes it anew", why);
}

/* A calm_plan_fetch_fn over the inputs of a run.  The mapping is closed at once, because calm_qblob_decode copies to
 * ctx->out. */
static calm_status fetch(void *user, calm_ctx *ctx, const calm_plan_job *job, calm_qjob *out)
{
    const calm_inputs *in = user;
    const calm_candidate *candidate = job->source;
    CALM_SCOPED_MAPPING(map);
    if (calm_blob_get(ctx, calm_store_blobs(in->store), candidate->blob, &map) != CALM_OK)
        return explain_damage(ctx);
    return calm_qblob_decode(ctx, candidate->blob, map.data, map.bytes, out);
}

calm_status calm_plan_of_choice(calm_ctx *ctx, const calm_inputs *in, const size_t *choice, calm_plan *out)
{
    const size_t n_jobs = calm_model_layout(in->model)->n_jobs;
    /* free_scales is only for measurements: a checkpoint has no place for a scale that no norm or weight can absorb. */
    *out = (calm_plan){.n_jobs = n_jobs, .free_scales = in->recipe->input_scales != CALM_SCALES_FOLDED, .fetch = fetch,
                       .user = (void *)(uintptr_t)in};
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->jobs, n_jobs));
    for (size_t j = 0; j < n_jobs; j++) {
        const calm_job_ref *job = &calm_model_layout(in->model)->jobs[j];
        if (choice[j] == CALM_STAYS_FLOAT || !in->recipe->pool[choice[j]].scheme.bits)    /* zero: float */
            continue;
        const calm_scheme scheme = calm_scheme_at(&in->recipe->pool[choice[j]].scheme, &job->place);
        out->jobs[j] = (calm_plan_job){.quantized = true, .scheme = calm_scheme_for(&scheme, job->in),
                                       .entry_name = in->recipe->pool[choice[j]].name,
                                       .source = calm_candidate_at(in, j, choice[j])};
    }
    return CALM_OK;
}

/* A calm_plan_vectors_fn over the inputs of a run. */
static calm_status fetch_vectors(void *user, calm_ctx *ctx, const void *source, calm_vectors *out)
{
    const calm_inputs *in = user;
    const calm_learned *learned = source;
    CALM_SCOPED_MAPPING(map);
    if (calm_blob_get(ctx, calm_store_blobs(in->store), learned->blob, &map) != CALM_OK)
        return explain_damage(ctx);
    return calm_vectors_decode(ctx, learned->blob, map.data, map.bytes, out);
}

calm_status calm_plan_learn(calm_ctx *ctx, const calm_inputs *in, const calm_plan *from, calm_learned *const *blocks,
                            calm_plan *out)
{
    const calm_layout *layout = calm_model_layout(in->model);
    const size_t n_blocks = calm_model_config(in->model)->n_blocks;
    *out = *from;
    out->vectors = fetch_vectors;
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->jobs, from->n_jobs));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->blocks, n_blocks));
    memcpy(out->jobs, from->jobs, from->n_jobs * sizeof *out->jobs);
    for (size_t b = 0; b < n_blocks; b++)
        for (size_t j = layout->block_begin[b]; blocks[b] && j < layout->block_begin[b + 1]; j++) {
            out->blocks[b] = blocks[b];
            if (from->jobs[j].quantized)
                out->jobs[j].source = &blocks[b]->jobs[j - layout->block_begin[b]];
        }
    return CALM_OK;
}

/* The choice covers the whole layout: jobs outside of the run are part of every plan, as float. */
calm_status calm_choice_uniform(calm_ctx *ctx, const calm_inputs *in, size_t entry, size_t **choice)
{
    const size_t n_jobs = calm_model_layout(in->model)->n_jobs;
    size_t first, end;
    calm_inputs_jobs(in, &first, &end);
    CALM_TRY(CALM_NEW(ctx, ctx->out, *choice, n_jobs));
    for (size_t j = 0; j < n_jobs; j++)
        (*choice)[j] = j >= first && j < end && !calm_inputs_keeps(in, j) ? entry : CALM_STAYS_FLOAT;
    return CALM_OK;
}

/* Sums over linears, because each has separate scales and a last group that may be shorter. */
static double job_bits(const calm_exporter *exporter, const calm_layout *layout, size_t job, const calm_scheme *scheme)
{
    const calm_job_ref *ref = &layout->jobs[job];
    double bits = 0;
    for (size_t i = ref->first; i < ref->first + ref->n; i++) {
        const calm_linear_ref *linear = &layout->linears[i];
        bits += calm_exporter_bits(exporter, scheme, linear->out, linear->in) * (double)linear->out *
                (double)linear->in;
    }
    return bits;
}

double calm_plan_bits(const calm_inputs *in, const calm_plan *plan)
{
    const calm_layout *layout = calm_model_layout(in->model);
    /* The format whose size is reported. */
    const calm_exporter *exporter = calm_formats_at(&in->recipe->formats, 0);
    double bits = 0, weights = 0;
    for (size_t j = 0; j < plan->n_jobs; j++)
        if (plan->jobs[j].quantized) {
            bits += job_bits(exporter, layout, j, &plan->jobs[j].scheme);
            weights += (double)layout->jobs[j].out * (double)layout->jobs[j].in;
        }
    return weights > 0 ? bits / weights : NAN;
}

/* Returns the mean over the weights of quantized jobs of their activations' bits. */
static double act_bits(const calm_inputs *in, const calm_plan *plan)
{
    const calm_layout *layout = calm_model_layout(in->model);
    double bits = 0, weights = 0;
    for (size_t j = 0; j < plan->n_jobs; j++) {
        const double n = (double)layout->jobs[j].out * (double)layout->jobs[j].in;
        if (!plan->jobs[j].quantized)
            continue;
        bits += n * calm_scheme_input_bits(&plan->jobs[j].scheme);
        weights += n;
    }
    return weights > 0 ? bits / weights : NAN;
}

/* The key covers the candidates' keys in job order, so everything that determines the weights, but not the plan's name:
 * a hybrid that equals a uniform run is measured once. */
calm_status calm_plan_key(calm_ctx *ctx, const calm_plan *plan, char key[CALM_SHA256_HEX])
{
    calm_sha256 sha;
    calm_sha256_init(&sha);
    calm_sha256_field(&sha, "calm-plan-1");
    for (size_t i = 0; i < plan->n_jobs; i++)
        calm_sha256_field(&sha,
                          plan->jobs[i].quantized ? ((const calm_candidate *)plan->jobs[i].source)->key : "float");
    return calm_sha256_finish(ctx, &sha, key);
}

calm_status calm_trial_of_plan(calm_ctx *ctx, const calm_inputs *in, const char *name, const calm_plan *plan,
                               calm_trial *out)
{
    *out = (calm_trial){.name = name, .plan = *plan, .delta = NAN, .se = NAN};
    /* The first job with a failed candidate explains why the plan cannot exist. */
    for (size_t j = 0; j < out->plan.n_jobs && !out->missing; j++) {
        const calm_candidate *candidate = out->plan.jobs[j].source;
        if (!out->plan.jobs[j].quantized || !candidate->failure)
            continue;
        const char *job = calm_model_layout(in->model)->jobs[j].name;
        const bool named = strncmp(candidate->failure, job, strlen(job)) == 0;    /* some failures name the job */
        CALM_TRY(calm_strf(ctx, ctx->out, &out->missing, "%s%s%s", named ? "" : job, named ? "" : ": ",
                           candidate->failure));
    }
    out->bits_per_weight = calm_plan_bits(in, &out->plan);    /* needs no codes */
    out->act_bits = act_bits(in, &out->plan);
    return calm_plan_key(ctx, &out->plan, out->key);
}

calm_status calm_trial_new(calm_ctx *ctx, const calm_inputs *in, const char *name, const size_t *choice,
                           calm_trial *out)
{
    calm_plan plan;
    CALM_TRY(calm_plan_of_choice(ctx, in, choice, &plan));
    return calm_trial_of_plan(ctx, in, name, &plan, out);
}

void calm_trial_append(calm_trial *trials, size_t widths, size_t *n)
{
    for (size_t i = 1; i < widths; i++)
        if (strcmp(trials[i].key, trials[*n].key) == 0) {
            trials[i] = trials[*n];
            return;
        }
    ++*n;
}
