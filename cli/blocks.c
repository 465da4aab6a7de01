/* Block by block: find what the store has, compute what it lacks.
 *
 * Hidden rows are needed up to the last block that lacks something; a block that lacks nothing is only run forward. */
#include "cli/blocks.h"

#include <math.h>
#include <string.h>

#include "store/blob.h"

/* What is missing, block by block. */
typedef struct missing {
    bool *activations;      /* [n_blocks]                        */
    bool outside;           /* embedding or final norm           */
    size_t *candidates;     /* [n_blocks]                        */
    size_t n_candidates;    /* all blocks                        */
    size_t end;             /* blocks that have to be run        */
} missing;

/* ---- what the store has ---- */

/* A blob that is missing or whose content is not what its name says is computed again. */
static bool blob_is_sound(calm_ctx *ctx, const calm_pipeline *p, const char *digest)
{
    calm_mapping map;
    if (calm_blob_get(ctx, calm_store_blobs(p->store), digest, &map) == CALM_OK) {
        calm_unmap_file(&map);
        return true;
    }
    calm_log(ctx, CALM_LOG_WARNING, "%s; it is computed again", ctx->message);
    calm_ctx_forgive(ctx);
    return false;
}

/* Take over a row that is complete: all metrics of this version, and a sound blob. */
static calm_status adopt(calm_ctx *ctx, const calm_pipeline *p, calm_candidate *candidate)
{
    calm_store_candidate row;
    size_t n_found = 0;
    CALM_TRY(calm_store_candidate_find(ctx, p->store, candidate->key, &row, &candidate->id));
    candidate->todo = true;
    if (candidate->id == 0)
        return CALM_OK;
    candidate->failure = row.failure;
    for (size_t i = 0; i < row.n_scores; i++) {
        const calm_metric metric = calm_metric_find(row.scores[i].metric);
        if (metric == CALM_N_METRICS || strcmp(row.scores[i].unit, "job") != 0)
            continue;
        candidate->score[metric] = row.scores[i].value;
        n_found++;
    }
    candidate->bits_per_weight = row.bits_per_weight;
    candidate->todo = !row.failure && (n_found < CALM_N_METRICS || !blob_is_sound(ctx, p, row.blob));
    if (!row.failure && !candidate->todo)
        memcpy(candidate->blob, row.blob, CALM_SHA256_HEX);
    return CALM_OK;
}

static calm_status survey(calm_ctx *ctx, calm_pipeline *p, missing *out)
{
    const size_t n_blocks = calm_model_config(p->model)->n_blocks;
    bool kept;
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->activations, n_blocks));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->candidates, n_blocks));
    for (size_t b = 0; b < n_blocks; b++) {
        for (calm_job_kind job = 0; job < CALM_N_JOBS; job++)
            for (size_t a = 0; a < p->recipe->n_algorithms; a++) {
                calm_candidate *candidate = calm_pipeline_candidate(p, b, job, a);
                CALM_TRY(adopt(ctx, p, candidate));
                out->candidates[b] += candidate->todo;
                p->n_cached += !candidate->todo;
            }
        CALM_TRY(calm_activations_kept(ctx, p, (long)b, &kept));
        out->activations[b] = !kept;
        out->n_candidates += out->candidates[b];
        if (!kept || out->candidates[b])
            out->end = b + 1;
    }
    CALM_TRY(calm_activations_kept(ctx, p, -1, &kept));
    out->outside = !kept;
    if (out->outside)
        out->end = n_blocks;
    return CALM_OK;
}

/* ---- one block ---- */

static calm_status list_items(calm_ctx *ctx, calm_pipeline *p, size_t block, size_t n, calm_block_work *work)
{
    CALM_TRY(CALM_NEW(ctx, ctx->out, work->items, n ? n : 1));
    for (calm_job_kind job = 0; job < CALM_N_JOBS; job++)
        for (size_t a = 0; a < p->recipe->n_algorithms; a++)
            if (calm_pipeline_candidate(p, block, job, a)->todo)
                work->items[work->n++] = (calm_work){.job = job, .algorithm = a};
    return CALM_OK;
}

static calm_status run_items(calm_ctx *ctx, calm_block_work *work, size_t done, size_t total)
{
    work->n_total = total;
    work->n_done = done;
    calm_progress_update(work->p->progress, CALM_STAGE_QUANTIZE, done, total);
    calm_status status = calm_block_quantize(ctx, work);
    work->n_done = done;
    calm_progress_update(work->p->progress, CALM_STAGE_SCORE, done, total);
    if (status == CALM_OK)
        status = calm_block_score(ctx, work);
    if (status == CALM_OK)
        status = calm_block_keep(ctx, work);
    for (size_t i = 0; i < work->n; i++)
        calm_arena_clear(&work->items[i].arena);
    return status;
}

static calm_status keep_activations(calm_ctx *ctx, const calm_pipeline *p, size_t block, const calm_capture *capture)
{
    CALM_TRY(calm_store_begin(ctx, p->store));
    for (calm_hook hook = 0; hook < CALM_N_HOOKS; hook++)
        if (capture->activations[hook])
            CALM_TRY(calm_activation_keep(ctx, p, (long)block, hook, capture->activations[hook]));
    return calm_store_commit(ctx, p->store);
}

static unsigned pool_needs(const calm_recipe *recipe)
{
    unsigned caps = 0;
    for (size_t a = 0; a < recipe->n_algorithms; a++)
        caps |= calm_algorithm_caps(recipe->algorithms[a]);
    return caps;
}

/* Everything of a block is in ctx->out, which the caller clears. */
static calm_status run_block(calm_ctx *ctx, calm_pipeline *p, size_t index, const missing *lacks, calm_batch *batch,
                             size_t *done)
{
    const size_t n = lacks->candidates[index];
    calm_block block;
    calm_capture capture;
    CALM_TRY(calm_model_load_block(ctx, p->model, index, &block));
    if (!n && !lacks->activations[index])
        return calm_batch_block(ctx, &block, &p->rope, batch, NULL);
    const calm_capture_options options = {.grams = n && (pool_needs(p->recipe) & CALM_NEEDS_GRAM),
                                          .activations = lacks->activations[index],
                                          .score_windows = n ? (size_t)p->recipe->score_windows : 0};
    CALM_TRY(calm_capture_block(ctx, &block, &p->rope, batch, &options, &capture));
    calm_progress_update(p->progress, CALM_STAGE_CALIBRATE, index + 1, lacks->end);
    if (lacks->activations[index])
        CALM_TRY(keep_activations(ctx, p, index, &capture));
    if (!n)
        return CALM_OK;
    calm_block_work work = {.p = p, .block = &block, .capture = &capture};
    CALM_TRY(list_items(ctx, p, index, n, &work));
    CALM_TRY(run_items(ctx, &work, p->n_cached + *done, p->n_cached + lacks->n_candidates));
    *done += n;
    return CALM_OK;
}

/* ---- all of them ---- */

static calm_status keep_outside(calm_ctx *ctx, calm_pipeline *p, calm_hook hook, const calm_batch *batch)
{
    calm_act_acc *acc;
    CALM_TRY(calm_capture_rows(ctx, batch, &acc));
    return calm_activation_keep(ctx, p, -1, hook, acc);
}

static calm_status run_final_norm(calm_ctx *ctx, calm_pipeline *p, calm_batch *batch)
{
    calm_head head;
    CALM_TRY(calm_model_load_head(ctx, p->model, &head));
    calm_head_norm(&head, batch->hidden, batch->rows);
    return keep_outside(ctx, p, CALM_HOOK_FINAL_NORM, batch);
}

static calm_status run_missing(calm_ctx *ctx, calm_pipeline *p, const missing *lacks, calm_arena *block_arena)
{
    calm_batch batch;
    calm_arena *caller = ctx->out;
    size_t done = 0;
    CALM_TRY(calm_batch_embed(ctx, p->model, &p->calib, 0, p->calib.n, ctx->out, &batch));
    ctx->out = block_arena;
    calm_status status = lacks->outside ? keep_outside(ctx, p, CALM_HOOK_EMBED, &batch) : CALM_OK;
    for (size_t b = 0; b < lacks->end && status == CALM_OK; b++) {
        calm_progress_update(p->progress, CALM_STAGE_CALIBRATE, b, lacks->end);
        status = run_block(ctx, p, b, lacks, &batch, &done);
        calm_arena_clear(block_arena);
    }
    if (status == CALM_OK && lacks->outside)
        status = run_final_norm(ctx, p, &batch);
    calm_arena_clear(block_arena);
    ctx->out = caller;
    return status;
}

static calm_status note_candidates(calm_ctx *ctx, calm_pipeline *p)
{
    CALM_TRY(calm_store_begin(ctx, p->store));
    for (size_t b = 0; b < calm_model_config(p->model)->n_blocks; b++)
        for (calm_job_kind job = 0; job < CALM_N_JOBS; job++)
            for (size_t a = 0; a < p->recipe->n_algorithms; a++)
                CALM_TRY(calm_store_run_candidate(ctx, p->store, p->run_id, calm_pipeline_candidate(p, b, job, a)->id));
    return calm_store_commit(ctx, p->store);
}

calm_status calm_pipeline_blocks(calm_ctx *ctx, calm_pipeline *p)
{
    missing lacks = {0};
    calm_arena block_arena, hidden_arena, *caller = ctx->out;
    CALM_TRY(survey(ctx, p, &lacks));
    if (p->n_cached)
        calm_log(ctx, CALM_LOG_INFO, "%zu of %zu candidates are in %s already", p->n_cached,
                 p->n_cached + lacks.n_candidates, p->recipe->store);
    calm_progress_update(p->progress, CALM_STAGE_SCORE, p->n_cached, p->n_cached + lacks.n_candidates);
    calm_progress_update(p->progress, CALM_STAGE_QUANTIZE, p->n_cached, p->n_cached + lacks.n_candidates);
    calm_progress_update(p->progress, CALM_STAGE_CALIBRATE, 0, lacks.end ? lacks.end : 1);
    if (lacks.end) {
        calm_arena_init(&block_arena);
        calm_arena_init(&hidden_arena);
        ctx->out = &hidden_arena;
        const calm_status status = run_missing(ctx, p, &lacks, &block_arena);
        ctx->out = caller;
        calm_arena_clear(&block_arena);
        calm_arena_clear(&hidden_arena);
        CALM_TRY(status);
    }
    calm_progress_finish(p->progress, CALM_STAGE_CALIBRATE);
    return note_candidates(ctx, p);
}
