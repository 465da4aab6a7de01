/* Finds what the store has, and computes what is missing, block by block.
 *
 * Hidden states are needed up to the last block with missing candidates; blocks without any only run forward. */
#include "ptq/base/times.h"
#include "ptq/search/search_impl.h"

#include <math.h>
#include <string.h>

#include "ptq/state/run_pool.h"
#include "ptq/tensor/bf16_product.h"
#include "ptq/tensor/linalg.h"
#include "store/blob.h"

/* ---- what the store has ---- */

/* Returns true if the blob exists and has its digest; *absent: it does not exist. */
static bool look(calm_ctx *ctx, const calm_run *p, const char *digest, bool *absent, char message[CALM_MESSAGE_MAX])
{
    CALM_SCOPED_MAPPING(map);
    /* The digest covers the whole file: otherwise a flipped bit would become a weight. */
    const calm_status status = calm_blob_get(ctx, calm_store_blobs(p->in.store), digest, &map);
    *absent = status == CALM_ENOTFOUND;
    if (status == CALM_OK)
        return true;
    memcpy(message, ctx->message, CALM_MESSAGE_MAX);
    calm_ctx_clear_failure(ctx);
    return false;
}

bool calm_run_blob_is_sound(calm_ctx *ctx, const calm_run *p, const char *digest)
{
    char message[CALM_MESSAGE_MAX];
    bool absent;
    if (look(ctx, p, digest, &absent, message))
        return true;
    calm_log(ctx, CALM_LOG_WARNING, "%s; it is computed again", message);
    return false;
}

/* Returns true if a candidate's codes are in the store or are not needed.  Absent codes were deleted when the candidate
 * lost, unless another rank has just `sent` it. */
static bool has_codes(calm_ctx *ctx, const calm_run *p, calm_candidate *candidate, bool sent)
{
    char message[CALM_MESSAGE_MAX];
    bool absent;
    if (look(ctx, p, candidate->blob, &absent, message))
        return true;
    candidate->dropped = absent && !sent;
    if (!candidate->dropped)
        calm_log(ctx, CALM_LOG_WARNING, "%s; it is computed again", message);
    return candidate->dropped && !p->in.recipe->keep_candidates;
}

/* Returns true if a row has all scores of a job that this run needs; with too few rows there are none. */
static bool is_scored(const calm_run *p, size_t entry, int64_t score_rows, const calm_score_set *scores)
{
    const bool linear = p->in.recipe->pool[entry].scheme.act_bits == 0 && calm_recipe_scores_linear(p->in.recipe);
    if (p->in.recipe->unscored)
        return true;
    if (score_rows < 0)    /* an earlier run that needed no score did not measure it */
        return false;
    return score_rows < CALM_LEAST_SCORE_ROWS ||
           (calm_score_set_has(scores, CALM_POINT_JOB) &&
            (!linear || !isnan(scores->value[CALM_POINT_JOB][CALM_SCORE_CKA_LINEAR])));
}

/* Uses a candidate's row if it is complete: all scores of a job, and a sound blob or deleted codes. */
static calm_status adopt(calm_ctx *ctx, const calm_run *p, size_t job, size_t entry)
{
    calm_candidate *candidate = calm_candidate_at(&p->in, job, entry);
    calm_store_candidate row;
    const bool sent = candidate->todo;    /* second survey, after other ranks have computed it */
    CALM_TRY(calm_store_candidate_find(ctx, p->in.store, candidate->key, &row, &candidate->id));
    /* Missing, unless the store has a complete row. */
    candidate->todo = true;
    candidate->dropped = false;
    calm_score_set_clear(&candidate->scores);
    if (candidate->id == 0)
        return CALM_OK;
    calm_run_adopt(candidate, &row);
    const bool complete = is_scored(p, entry, row.score_rows, &candidate->scores);
    /* A failure is a result: the same inputs would fail again.  A row without all scores (of an older calm or a killed
     * run) is computed again as a whole; it keeps its id. */
    candidate->todo = !row.failure && (!complete || !has_codes(ctx, p, candidate, sent));
    if (candidate->todo && !candidate->dropped)
        candidate->blob[0] = '\0';
    return CALM_OK;
}

/* Skips all candidates of a job that stays float, whatever the store has. */
static void leave_float(calm_run *p, size_t job)
{
    for (size_t entry = 0; entry < p->in.recipe->n_pool; entry++) {
        calm_candidate *candidate = calm_candidate_at(&p->in, job, entry);
        calm_score_set_clear(&candidate->scores);
        candidate->skipped = true;
        candidate->failure = CALM_KEPT_FLOAT;
    }
}

/* Uses the rows that the store has of one job. */
static calm_status adopt_job(calm_ctx *ctx, calm_run *p, size_t job)
{
    if (calm_inputs_keeps(&p->in, job)) {
        leave_float(p, job);
        return CALM_OK;
    }
    for (size_t entry = 0; entry < p->in.recipe->n_pool; entry++)
        CALM_TRY(adopt(ctx, p, job, entry));
    /* By the crest in the store, if there is one; otherwise after the block is captured. */
    calm_run_skip(ctx, p, job);
    return CALM_OK;
}

/* Marks deleted codes of a unit's jobs as wanted if the unit still needs a score as a whole. */
static void recall_unit(calm_run *p, size_t begin, size_t end, unsigned points)
{
    for (size_t entry = 0; entry < p->in.recipe->n_pool; entry++) {
        bool missing = false;
        for (calm_point point = 0; point < CALM_N_POINTS; point++)
            missing |= points & 1u << point && calm_run_lacks_score(p, begin, end, entry, point);
        for (size_t job = begin; job < end && missing; job++)
            calm_candidate_at(&p->in, job, entry)->todo |= calm_candidate_at(&p->in, job, entry)->dropped;
    }
}

static void recall_block(calm_run *p, size_t block)
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    const size_t first = layout->block_begin[block], last = layout->block_begin[block + 1];
    recall_unit(p, first, last, 1u << CALM_POINT_BLOCK | 1u << CALM_POINT_DELTA);
    for (size_t job = first, end; job < last; job = end) {
        size_t begin;
        calm_layout_unit(layout, CALM_UNIT_SUBLAYER, job, &begin, &end);
        recall_unit(p, begin, end, 1u << CALM_POINT_SUBLAYER);
    }
}

/* Counts the missing candidates of one job, and registers the others with the run. */
static calm_status count_job(calm_ctx *ctx, calm_run *p, size_t job, size_t *n_missing)
{
    for (size_t entry = 0; entry < p->in.recipe->n_pool; entry++) {
        const calm_candidate *candidate = calm_candidate_at(&p->in, job, entry);
        const bool adopted = !candidate->todo && !candidate->skipped;
        *n_missing += candidate->todo;
        p->result.n_cached += adopted;
        /* With --effort light a candidate may still be skipped when the crest is known: note_candidates. */
        if (adopted && !p->in.recipe->skip_smoothing)
            CALM_TRY(calm_store_run_candidate(ctx, p->in.store, p->result.run_id, candidate->id));
    }
    return CALM_OK;
}

/* Counts the missing candidates of a block, and registers the others with the run. */
static calm_status survey_block(calm_ctx *ctx, calm_run *p, size_t block, size_t *n_missing, bool *units)
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    const size_t begin = layout->block_begin[block], end = layout->block_begin[block + 1];
    *n_missing = 0;
    CALM_SCOPED_TRANSACTION(ctx, p->in.store);
    for (size_t job = begin; job < end; job++)
        CALM_TRY(adopt_job(ctx, p, job));
    recall_block(p, block);
    for (size_t job = begin; job < end; job++)
        CALM_TRY(count_job(ctx, p, job, n_missing));
    CALM_TRY(calm_store_commit(ctx, p->in.store));
    *units = calm_unit_missing(p, begin, end, CALM_POINT_BLOCK) || calm_unit_missing(p, begin, end, CALM_POINT_DELTA);
    return CALM_OK;
}

/* Returns true if a sublayer or expert of the block lacks scores. */
static bool sublayers_lack(const calm_run *p, size_t block)
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    bool missing = false;
    for (size_t job = layout->block_begin[block], end; job < layout->block_begin[block + 1]; job = end) {
        size_t begin;
        calm_layout_unit(layout, CALM_UNIT_SUBLAYER, job, &begin, &end);
        missing |= calm_unit_missing(p, begin, end, CALM_POINT_SUBLAYER);
    }
    return missing;
}

/* Finds what is missing in every block, and the last block that must run for it. */
static calm_status survey(calm_ctx *ctx, calm_run *p, calm_missing *out)
{
    const size_t n_blocks = calm_model_config(p->in.model)->n_blocks;
    bool kept;
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->activations, n_blocks));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->blocks, n_blocks));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->any, n_blocks));
    for (size_t b = p->in.first_block; b < p->in.end_block; b++) {
        size_t n_missing;
        CALM_TRY(survey_block(ctx, p, b, &n_missing, &out->blocks[b]));
        CALM_TRY(calm_activations_kept(ctx, p, (long)b, &kept));
        /* The block's output is stored last, so it shows that all hook points are stored. */
        out->activations[b] = !kept && calm_inputs_measured(&p->in);
        out->n_candidates += n_missing;
        out->any[b] = out->activations[b] || n_missing || out->blocks[b] || sublayers_lack(p, b);
        if (out->any[b])
            out->end = b + 1;
    }
    /* -1: hook points of embedding and final norm. */
    CALM_TRY(calm_activations_kept(ctx, p, -1, &kept));
    /* Only runs of the whole model reach the final norm. */
    out->outside = !kept && calm_inputs_measured(&p->in) && p->in.end_block == n_blocks;
    if (out->outside)
        out->end = n_blocks;
    return CALM_OK;
}

/* ---- deleted codes of earlier blocks ---- */

bool calm_run_any_dropped(const calm_run *p)
{
    bool any = false;
    for (size_t i = 0; i < calm_model_layout(p->in.model)->n_jobs * p->in.recipe->n_pool; i++)
        any |= p->in.candidates[i].dropped;
    return any;
}

calm_status calm_recompute_prefix(calm_ctx *ctx, calm_run *p, calm_missing *missing)
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    if (p->in.recipe->prefix == CALM_PREFIX_FLOAT || !calm_run_any_dropped(p))
        return CALM_OK;
    for (size_t b = p->in.first_block; b < missing->end; b++) {
        size_t n_todo = 0;
        for (size_t job = layout->block_begin[b]; job < layout->block_begin[b + 1]; job++)
            for (size_t entry = 0; entry < p->in.recipe->n_pool; entry++)
                n_todo += calm_candidate_at(&p->in, job, entry)->todo;
        if (!n_todo)
            CALM_TRY(calm_run_choose_block(ctx, p, b));
        for (size_t job = layout->block_begin[b]; job < layout->block_begin[b + 1]; job++)
            for (size_t entry = 0; entry < p->in.recipe->n_pool; entry++) {
                calm_candidate *candidate = calm_candidate_at(&p->in, job, entry);
                /* The choice is known once the block has all scores: until then it may be any candidate. */
                if (!candidate->dropped || candidate->todo || (!n_todo && p->choice[job] != entry))
                    continue;
                candidate->todo = missing->any[b] = true;
                missing->n_candidates++;
            }
    }
    return CALM_OK;
}

/* Reads the rows that other ranks have computed and sent, as a later run would. */
static calm_status take_over(calm_ctx *ctx, calm_run *p, const calm_missing *missing)
{
    const size_t n_cached = p->result.n_cached;
    for (size_t b = 0; b < missing->end && missing->owner && calm_cluster_rank(p->cluster) == 0; b++) {
        size_t n_missing;
        bool units;
        if (!missing->any[b] || calm_division_mine(p, missing, b))
            continue;
        CALM_TRY(survey_block(ctx, p, b, &n_missing, &units));
        if (n_missing)
            return calm_fail(ctx, CALM_EIO, "block %zu: rank %d did not deliver %zu candidates, or not their blobs", b,
                             missing->owner[b], n_missing);
    }
    p->result.n_cached = n_cached;    /* they were not in the store before this run */
    return CALM_OK;
}

/* ---- the blocks ---- */

/* Stores statistics of a hook point outside the blocks, of the batch's current hidden states. */
static calm_status keep_outside(calm_ctx *ctx, calm_run *p, calm_hook hook, const calm_batch *batch)
{
    calm_actstat_acc *acc, **of_text;
    CALM_TRY(calm_capture_rows(ctx, batch, &acc, &of_text));
    return calm_activation_keep(ctx, p, -1, CALM_NO_EXPERT, hook, acc, of_text);
}

/* Applies the final norm to the batch, and stores its statistics. */
static calm_status run_final_norm(calm_ctx *ctx, calm_run *p, calm_batch *batch)
{
    calm_head head;
    CALM_TRY(calm_model_load_head(ctx, p->in.model, &head));
    CALM_TRY(calm_batch_norm(ctx, &head.norm, batch));
    return keep_outside(ctx, p, CALM_HOOK_FINAL_NORM, batch);
}

/* After a block: passes it to the guard, if that runs together with the blocks. */
static calm_status tell_guard(calm_ctx *ctx, calm_run *p, size_t block)
{
    CALM_SCOPED_TIME(&p->result.times, CALM_TIME_GUARD);
    return p->guard ? p->guard->block_done(ctx, p, block) : CALM_OK;
}

/* Computes candidates from weights alone, without a forward pass. */
static calm_status run_blind(calm_ctx *ctx, calm_run *p, const calm_missing *missing)
{
    size_t done = 0;
    CALM_SCOPED_RESULTS(ctx);
    for (size_t b = p->in.first_block; b < missing->end; b++) {
        calm_event(&p->events, CALM_STAGE_CALIBRATE, b, missing->end);
        if (!calm_division_mine(p, missing, b))
            continue;
        calm_cluster_place(p->cluster, "block %zu", b);
        CALM_TRY(calm_block_process(ctx, p, b, missing, NULL, NULL, &done));
        CALM_TRY(tell_guard(ctx, p, b));
        calm_arena_clear(ctx->out);
    }
    return CALM_OK;
}

/* Runs all blocks in one rank.  Two arenas: hidden states live from embedding to end, all else for one block. */
static calm_status embed_and_run(calm_ctx *ctx, calm_run *p, const calm_missing *missing)
{
    CALM_SCOPED_ARENA(hidden);
    CALM_SCOPED(calm_batch, calm_batch_close) batch = {.hidden.file = -1}, exact = {.hidden.file = -1};
    const bool lockstep = p->in.recipe->prefix == CALM_PREFIX_ASYMMETRIC;
    size_t done = 0;
    if (!calm_division_mine(p, missing, 0))    /* another rank computes all blocks */
        return CALM_OK;
    {
        CALM_SCOPED_LEND(p->cluster);
        CALM_TRY(calm_batch_embed(ctx, p->in.model, &p->in.calib, 0, p->in.calib.n, &hidden, p->spill_dir, &batch));
    }
    CALM_TRY(calm_batch_new_shared(ctx, calm_model_config(p->in.model), &hidden, &batch));
    if (lockstep)
        CALM_TRY(calm_batch_copy(ctx, &batch, batch.n, &hidden, p->spill_dir, &exact));
    if (lockstep)
        CALM_TRY(calm_batch_new_shared(ctx, calm_model_config(p->in.model), &hidden, &exact));
    /* From here on results go to another arena, which is cleared after each block. */
    CALM_SCOPED_ARENA(results);
    CALM_SCOPED_OUT(ctx, &results);
    if (missing->outside)
        CALM_TRY(keep_outside(ctx, p, CALM_HOOK_EMBED, &batch));
    for (size_t b = 0; b < missing->end; b++) {
        calm_cluster_place(p->cluster, "block %zu", b);
        /* All blocks up to the last one with missing candidates run, because each is the input of the next. */
        calm_event(&p->events, CALM_STAGE_CALIBRATE, b, missing->end);
        CALM_TRY(calm_block_process(ctx, p, b, missing, &batch, lockstep ? &exact : NULL, &done));
        CALM_TRY(tell_guard(ctx, p, b));
        /* All data of a block is freed before the next is loaded. */
        calm_arena_clear(ctx->out);
    }
    return missing->outside ? run_final_norm(ctx, p, &batch) : CALM_OK;
}

/* Runs the blocks of this rank, one of several; hidden states come from the rank with the block before. */
static calm_status run_share(calm_ctx *ctx, calm_run *p, const calm_missing *missing)
{
    CALM_SCOPED_ARENA(hidden);
    CALM_SCOPED(calm_flow *, calm_flow_close) flow = NULL;
    calm_batch *batch = NULL;
    size_t done = 0;
    CALM_TRY(calm_flow_open(ctx, p, missing, &hidden, &flow));
    CALM_SCOPED_RESULTS(ctx);
    for (size_t b = 0; b < missing->end; b++) {
        calm_event(&p->events, CALM_STAGE_CALIBRATE, b, missing->end);
        if (!calm_division_mine(p, missing, b))
            continue;
        calm_cluster_place(p->cluster, "block %zu", b);
        CALM_TRY(calm_flow_enter(ctx, flow, b, &batch));
        if (b == 0 && missing->outside)
            CALM_TRY(keep_outside(ctx, p, CALM_HOOK_EMBED, batch));
        CALM_TRY(calm_block_process(ctx, p, b, missing, batch, NULL, &done));
        calm_arena_clear(ctx->out);
    }
    if (missing->outside && calm_division_mine(p, missing, missing->end - 1))
        CALM_TRY(run_final_norm(ctx, p, batch));
    return calm_flow_finish(ctx, flow);
}

/* With --effort light: registers the candidates that were not skipped, which are known only now. */
static calm_status note_candidates(calm_ctx *ctx, calm_run *p)
{
    size_t first, end;
    calm_inputs_jobs(&p->in, &first, &end);
    CALM_SCOPED_TRANSACTION(ctx, p->in.store);
    for (size_t job = first; job < end; job++)
        for (size_t entry = 0; entry < p->in.recipe->n_pool; entry++) {
            const calm_candidate *candidate = calm_candidate_at(&p->in, job, entry);
            if (!candidate->skipped)
                CALM_TRY(calm_store_run_candidate(ctx, p->in.store, p->result.run_id, candidate->id));
        }
    return calm_store_commit(ctx, p->in.store);
}

calm_status calm_run_missing(calm_ctx *ctx, calm_run *p, const calm_missing *missing)
{
    const bool blind = !calm_inputs_read_rows(&p->in);
    const bool flows = missing->owner && p->in.recipe->prefix == CALM_PREFIX_FLOAT;
    if (!missing->end)
        return CALM_OK;
    if (p->in.recipe->operands != CALM_OPERANDS_F32 && !blind && !calm_bf16_is_fast(p->in.recipe->operands))
        calm_log(ctx, CALM_LOG_WARNING, p->in.recipe->operands == CALM_OPERANDS_BF16 ?
                 "`calibration.dtype` bf16: with OpenBLAS's kernels %s there are no products of bfloat16, so operands "
                 "are rounded and multiplied in float32, which takes longer than f32" :
                 "`calibration.dtype` bf16x2: there is no AMX with OpenBLAS's kernels %s, so products are of float32",
                 calm_linalg_kernels());
    /* Except for the time of stages within it. */
    CALM_SCOPED_TIME(&p->result.times, CALM_TIME_FORWARD);
    CALM_SCOPED_ARENA(weights);
    CALM_TRY(calm_run_weigh_rows(ctx, p, missing, &weights));
    const calm_status status = (blind ? run_blind : flows ? run_share : embed_and_run)(ctx, p, missing);
    p->row_factors = NULL;
    return status;
}

calm_status calm_run_blocks(calm_ctx *ctx, calm_run *p)
{
    calm_missing missing = {0};
    if (calm_cluster_rank(p->cluster) == 0)
        CALM_TRY(survey(ctx, p, &missing));
    CALM_TRY(calm_division_share(ctx, p, &missing));
    /* From here on pool and scope have the ids and failures of stored candidates. */
    p->surveyed = true;
    CALM_TRY(calm_run_rescope(ctx, p));
    CALM_TRY(calm_recompute_prefix(ctx, p, &missing));
    if (p->result.n_cached)
        calm_log(ctx, CALM_LOG_INFO, "%zu of %zu candidates are in %s already", p->result.n_cached,
                 p->result.n_cached + missing.n_candidates, p->in.recipe->store);
    /* The first event of a stage counts what the store had, so that receivers compute rates from the rest. */
    calm_event(&p->events, CALM_STAGE_SCORE, p->result.n_cached, p->result.n_cached + missing.n_candidates);
    calm_event(&p->events, CALM_STAGE_QUANTIZE, p->result.n_cached, p->result.n_cached + missing.n_candidates);
    calm_event(&p->events, CALM_STAGE_CALIBRATE, 0, missing.end);
    if (p->guard)
        CALM_TRY(p->guard->begin(ctx, p, missing.n_candidates));
    CALM_TRY(calm_run_missing(ctx, p, &missing));
    calm_event_complete(&p->events, CALM_STAGE_CALIBRATE);
    CALM_TRY(calm_division_collect(ctx, p, &missing));
    CALM_TRY(take_over(ctx, p, &missing));
    if (p->cluster) {    /* other ranks' candidates were not counted one by one */
        calm_event_complete(&p->events, CALM_STAGE_QUANTIZE);
        calm_event_complete(&p->events, CALM_STAGE_SCORE);
    }
    /* Every candidate exists or has failed: pool and scope get the failures. */
    p->computed = true;
    CALM_TRY(calm_run_rescope(ctx, p));
    /* Only rank 0 has the store. */
    return p->in.recipe->skip_smoothing && calm_cluster_rank(p->cluster) == 0 ? note_candidates(ctx, p) : CALM_OK;
}
