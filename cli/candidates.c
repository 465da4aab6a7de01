/* Candidates of one block: quantize, score, keep. */
#include <stdio.h>
#include <string.h>

#include "cli/blocks.h"
#include "ptq/base/threads.h"
#include "ptq/hybrid/qblob.h"
#include "store/blob.h"

/* Inputs of o are the query heads' contexts: heads that share a kv head read the same rows of v, so they share a
 * scale. */
static calm_status absorb_groups(calm_ctx *ctx, const calm_config *config, uint32_t **groups, size_t *n)
{
    const size_t d = config->head_dim, width = config->n_heads * d, heads_per_kv = config->n_heads / config->n_kv;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, *groups, width));
    for (size_t i = 0; i < width; i++)
        (*groups)[i] = (uint32_t)(i / d / heads_per_kv * d + i % d);
    *n = config->n_kv * d;
    return CALM_OK;
}

/* The job as algorithms see it, in ctx->scratch. */
static calm_status describe_job(calm_ctx *ctx, const calm_block_work *work, calm_job_kind kind, calm_job *out)
{
    const calm_block *block = work->block;
    calm_linear *linears;
    char *name;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, linears, CALM_N_ROLES));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "block %zu, %s", block->index, calm_job_name(kind)));
    *out = (calm_job){.name = name, .linears = linears, .stats = &work->capture->stats[kind],
                      .scheme = work->p->recipe->scheme, .can_absorb = true};
    for (calm_role role = 0; role < CALM_N_ROLES; role++) {
        const calm_weight *weight = &block->weight[role];
        if (calm_role_job(role) == kind)
            linears[out->n_linears++] = (calm_linear){weight->name, weight->out, weight->in, weight->w};
    }
    if (kind == CALM_JOB_O) {
        uint32_t *groups;
        CALM_TRY(absorb_groups(ctx, block->config, &groups, &out->n_absorb_groups));
        out->absorb_group = groups;
    }
    return CALM_OK;
}

/* A candidate's own numerical failure is remembered with it; anything else ends the run. */
static calm_status settle(calm_ctx *ctx, calm_work *item, calm_status status)
{
    if (status != CALM_ENUMERIC && status != CALM_EUNSUPPORTED)
        return status;
    item->failed = true;
    memcpy(item->reason, ctx->message, sizeof item->reason);
    calm_ctx_forgive(ctx);
    return CALM_OK;
}

static void tick(calm_block_work *work, calm_stage stage)
{
    size_t done;
#pragma omp atomic capture
    done = ++work->n_done;
    calm_progress_update(work->p->progress, stage, done, work->n_total);
}

static calm_status quantize_one(calm_ctx *ctx, size_t index, void *user)
{
    calm_block_work *work = user;
    calm_work *item = &work->items[index];
    const double begun = calm_seconds();
    calm_job job;
    ctx->out = &item->arena;
    calm_status status = describe_job(ctx, work, (calm_job_kind)item->job, &job);
    if (status == CALM_OK)
        status = calm_algorithm_run(ctx, work->p->recipe->algorithms[item->algorithm], &job, &item->qjob);
    ctx->out = NULL;
    item->seconds = calm_seconds() - begun;
    tick(work, CALM_STAGE_QUANTIZE);
    return settle(ctx, item, status);
}

calm_status calm_block_quantize(calm_ctx *ctx, calm_block_work *work)
{
    for (size_t i = 0; i < work->n; i++)
        calm_arena_init(&work->items[i].arena);
    return calm_parallel_for(ctx, work->n, quantize_one, work);
}

/* ---- scoring ---- */

/* A copy of the block in which this job alone is quantized, as it will run: weight-only schemes take the input scale
 * into the weights, quantized activations need it on the input. */
static calm_status replace_job(calm_ctx *ctx, const calm_block_work *work, const calm_work *item, calm_block *out)
{
    const calm_qjob *qjob = &item->qjob;
    const int act_bits = qjob->scheme.act_bits;
    float *w;
    size_t row = 0;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, w, qjob->out * qjob->in));
    if (act_bits)
        calm_qjob_dequantize(qjob, w);
    else
        calm_qjob_effective(qjob, w);
    *out = *work->block;
    for (calm_role role = 0; role < CALM_N_ROLES; role++) {
        calm_weight *weight = &out->weight[role];
        if (calm_role_job(role) != (calm_job_kind)item->job)
            continue;
        weight->w = w + row * qjob->in;
        weight->in_scale = act_bits ? qjob->in_scale : NULL;
        weight->act_bits = act_bits;
        row += weight->out;
    }
    return CALM_OK;
}

/* Output of the sublayer for all scoring windows. */
static calm_status candidate_output(calm_ctx *ctx, const calm_block_work *work, const calm_work *item, float *z)
{
    const calm_pipeline *p = work->p;
    const calm_capture *capture = work->capture;
    const size_t width = capture->width[item->job], hidden = work->block->config->hidden;
    calm_block block;
    CALM_TRY(replace_job(ctx, work, item, &block));
    for (size_t w = 0; p->calib.begin[w] < capture->score_rows; w++) {
        const size_t row = p->calib.begin[w], n = p->calib.begin[w + 1] - row;
        calm_arena_mark mark = calm_arena_save(ctx->scratch);
        CALM_TRY(calm_block_from_job(ctx, &block, &p->rope, (calm_job_kind)item->job,
                                     capture->score_input[item->job] + row * width, n, z + row * hidden));
        calm_arena_rewind(ctx->scratch, mark);
    }
    return CALM_OK;
}

static calm_status score_one(calm_ctx *ctx, size_t index, void *user)
{
    calm_block_work *work = user;
    calm_work *item = &work->items[index];
    const calm_sublayer sublayer = calm_job_sublayer((calm_job_kind)item->job);
    float *z;
    calm_status status = CALM_OK;
    if (!item->failed) {
        status = CALM_NEW_RAW(ctx, ctx->scratch, z, work->capture->score_rows * work->block->config->hidden);
        if (status == CALM_OK)
            status = candidate_output(ctx, work, item, z);
        if (status == CALM_OK)
            status = calm_score(ctx, work->reference[sublayer], z, &item->scores);
    }
    tick(work, CALM_STAGE_SCORE);
    return settle(ctx, item, status);
}

calm_status calm_block_score(calm_ctx *ctx, calm_block_work *work)
{
    const calm_capture *capture = work->capture;
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
        CALM_TRY(calm_score_prepare(ctx, capture->score_output[s], capture->score_rows, work->block->config->hidden,
                                    &work->reference[s]));
    return calm_parallel_for(ctx, work->n, score_one, work);
}

/* ---- keeping ---- */

static calm_status keep_one(calm_ctx *ctx, const calm_block_work *work, const calm_work *item)
{
    calm_pipeline *p = work->p;
    const calm_algorithm *algorithm = p->recipe->algorithms[item->algorithm];
    calm_candidate *candidate =
        calm_pipeline_candidate(p, work->block->index, (calm_job_kind)item->job, item->algorithm);
    calm_store_score scores[CALM_N_METRICS];
    char scheme[CALM_SCHEME_NAME_MAX];
    void *bytes;
    calm_scheme_name(&p->recipe->scheme, scheme);
    calm_store_candidate row = {.key = candidate->key,
                                .calibration_id = p->calibration_id,
                                .job_id = p->job_ids[work->block->index * CALM_N_JOBS + item->job],
                                .algorithm = calm_algorithm_name(algorithm),
                                .chain = calm_algorithm_canonical(algorithm),
                                .scheme = scheme,
                                .seconds = item->seconds};
    if (item->failed) {
        char *reason;
        CALM_TRY(calm_strf(ctx, p->arena, &reason, "%s", item->reason));
        candidate->failure = reason;
        row.failure = reason;
        return calm_store_candidate_put(ctx, p->store, &row, &candidate->id);
    }
    calm_arena_mark mark = calm_arena_save(ctx->out);
    size_t n_bytes;
    CALM_TRY(calm_qblob_encode(ctx, &item->qjob, &bytes, &n_bytes));
    const calm_blob_piece piece = {bytes, n_bytes};
    CALM_TRY(calm_blob_put(ctx, calm_store_blobs(p->store), &piece, 1, candidate->blob));
    calm_arena_rewind(ctx->out, mark);
    for (calm_metric m = 0; m < CALM_N_METRICS; m++) {
        candidate->score[m] = item->scores.value[m];
        scores[m] = (calm_store_score){NULL, calm_metric_name(m), item->scores.value[m]};
    }
    candidate->bits_per_weight = calm_scheme_bits_per_weight(&p->recipe->scheme, item->qjob.out, item->qjob.in);
    row.blob = candidate->blob;
    row.blob_bytes = (int64_t)n_bytes;
    row.bits_per_weight = candidate->bits_per_weight;
    row.damp = item->qjob.damp;
    row.score_rows = (int64_t)item->scores.n_rows;
    row.dropped_rows = (int64_t)item->scores.n_dropped;
    row.scores = scores;
    row.n_scores = CALM_N_METRICS;
    return calm_store_candidate_put(ctx, p->store, &row, &candidate->id);
}

calm_status calm_block_keep(calm_ctx *ctx, calm_block_work *work)
{
    for (size_t i = 0; i < work->n; i++)
        CALM_TRY(keep_one(ctx, work, &work->items[i]));
    return CALM_OK;
}
