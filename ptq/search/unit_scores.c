/* Scores of whole sublayers and blocks, with every job of the unit quantized by the same entry of the pool.
 *
 * They belong to the unit, and are stored with each of its candidates. */
#include <math.h>
#include <string.h>

#include "ptq/search/search_impl.h"
#include "ptq/base/threads.h"
#include "ptq/plan/assemble.h"
#include "ptq/plan/plan.h"

/* Returns true if every job of the unit, except jobs that stay float, has a result of this entry. */
static bool is_whole(const calm_run *p, size_t begin, size_t end, size_t entry)
{
    bool whole = true;
    size_t n = 0;
    for (size_t job = begin; job < end; job++) {
        whole &= calm_inputs_keeps(&p->in, job) || !calm_candidate_at(&p->in, job, entry)->failure;
        n += !calm_inputs_keeps(&p->in, job);
    }
    return whole && n > 0;
}

bool calm_run_lacks_score(const calm_run *p, size_t begin, size_t end, size_t entry, calm_point point)
{
    bool missing = false;
    /* Not wanted, or a job has no result. */
    if (!(p->in.recipe->score_points & 1u << point) || !is_whole(p, begin, end, entry))
        return false;
    for (size_t job = begin; job < end; job++)
        /* A killed run may have stored the score with only some of the unit's candidates. */
        missing |= !calm_inputs_keeps(&p->in, job) &&
                   !calm_score_set_has(&calm_candidate_at(&p->in, job, entry)->scores, point);
    return missing;
}

bool calm_unit_missing(const calm_run *p, size_t begin, size_t end, calm_point point)
{
    bool missing = false;
    for (size_t entry = 0; entry < p->in.recipe->n_pool; entry++)
        missing |= calm_run_lacks_score(p, begin, end, entry, point);
    return missing;
}

/* Stores the scores of a point for the candidates of jobs begin .. end - 1. */
static calm_status keep(calm_ctx *ctx, calm_run *p, size_t begin, size_t end, size_t entry, calm_point point,
                        const calm_scores *scores)
{
    calm_store_score rows[CALM_N_SCORES];
    for (size_t job = begin; job < end; job++) {
        calm_candidate *candidate = calm_candidate_at(&p->in, job, entry);
        /* A float job has no row in the store. */
        if (calm_inputs_keeps(&p->in, job))
            continue;
        calm_score_set_put(&candidate->scores, point, scores);
        const size_t n = calm_scores_as_rows(&candidate->scores, point, rows);
        CALM_TRY(calm_store_scores_add(ctx, p->in.store, candidate->id, rows, n));
    }
    return CALM_OK;
}

/* Scores an output.  If it is constant or not finite, all scores are infinite: the entry cannot be chosen for the
 * unit. */
static calm_status score(calm_ctx *ctx, const calm_score_ref *reference, const float *z, calm_scores *out)
{
    const calm_status status = calm_score(ctx, reference, z, out);
    if (status != CALM_OK && status != CALM_ENUMERIC)
        return status;
    /* Only the entry fails, not the run. */
    calm_ctx_clear_failure(ctx);
    /* Infinity instead of NaN: the store has no NaN, and every run would score a unit without a score again. */
    for (calm_metric m = 0; m < CALM_N_METRICS && (status != CALM_OK || out->constant); m++)
        out->value[m] = INFINITY;
    return CALM_OK;
}

/* ---- sublayers and experts ---- */

/* The data of a sublayer's tasks; each task writes the scores of one entry. */
typedef struct sublayer_task {
    const calm_run *p;
    const calm_block *block;
    const calm_captured *captured;
    calm_plan *plans;          /* [n] plan of each entry */
    calm_scores *scores;       /* [n] scores of each entry */
} sublayer_task;

/* Task: scores the sublayer or expert with all its jobs quantized by one entry. */
static calm_status score_sublayer(calm_ctx *ctx, size_t index, void *user)
{
    const sublayer_task *task = user;
    const calm_captured *captured = task->captured;
    const calm_layout *layout = calm_model_layout(task->p->in.model);
    const calm_plan *plan = &task->plans[index];
    calm_weight weight[CALM_N_ROLES];
    float *z;
    /* Roles outside of the unit's jobs keep their float weights. */
    memcpy(weight, captured->capture->weight, sizeof weight);
    ctx->out = ctx->scratch;    /* codes are temporary here */
    for (size_t job = captured->begin; job < captured->end; job++) {
        calm_qjob qjob;
        if (!plan->jobs[job].quantized)
            continue;
        CALM_TRY(plan->fetch(plan->user, ctx, &plan->jobs[job], &qjob));
        CALM_TRY(calm_job_replace(ctx, layout, job, &qjob, weight));
    }
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, z, captured->capture->score_rows *
                                             calm_expert_width(task->block->config, captured->capture->expert)));
    /* From the input of the unit's first job on: later jobs get the outputs of quantized earlier jobs. */
    CALM_TRY(calm_captured_output(ctx, task->p, task->block, captured, layout->jobs[captured->begin].kind, weight, z));
    return score(ctx, captured->reference, z, &task->scores[index]);
}

calm_status calm_sublayer_score(calm_ctx *ctx, calm_run *p, const calm_block *block, const calm_captured *captured)
{
    /* Plans are built before the tasks, because ctx->out is not thread-safe. */
    size_t *entries, n = 0;
    sublayer_task task = {.p = p, .block = block, .captured = captured};
    if (!captured->reference)
        return CALM_OK;
    CALM_TRY(CALM_NEW(ctx, ctx->out, task.plans, p->in.recipe->n_pool));
    CALM_TRY(CALM_NEW(ctx, ctx->out, entries, p->in.recipe->n_pool));
    CALM_TRY(CALM_NEW(ctx, ctx->out, task.scores, p->in.recipe->n_pool));
    for (size_t entry = 0; entry < p->in.recipe->n_pool; entry++) {
        size_t *choice;
        if (!calm_run_lacks_score(p, captured->begin, captured->end, entry, CALM_POINT_SUBLAYER))
            continue;
        CALM_TRY(calm_choice_uniform(ctx, &p->in, entry, &choice));
        CALM_TRY(calm_plan_of_choice(ctx, &p->in, choice, &task.plans[n]));
        entries[n++] = entry;
    }
    {
        CALM_SCOPED_LEND(p->cluster);
        CALM_TRY(calm_parallel_for(ctx, n, score_sublayer, &task));
    }
    /* The store has one writer: rows are stored after the tasks, in the pool's order. */
    for (size_t i = 0; i < n; i++)
        CALM_TRY(keep(ctx, p, captured->begin, captured->end, entries[i], CALM_POINT_SUBLAYER, &task.scores[i]));
    return CALM_OK;
}

/* ---- blocks ---- */

/* Computes output, and output minus input, of a block, float or with a plan: [n, D] each in ctx->out. */
static calm_status run_block(calm_ctx *ctx, const calm_run *p, size_t index, const calm_plan *plan,
                             const calm_batch *rows, float **output, float **delta)
{
    calm_plan_override override = {p->in.model, plan};
    const size_t hidden = rows->width - rows->carried;
    calm_batch batch;
    calm_block block;
    CALM_SCOPED_LEND(p->cluster);
    /* A copy, because the block overwrites its rows and every entry reads `rows`. */
    CALM_TRY(calm_batch_copy(ctx, rows, rows->n, ctx->out, NULL, &batch));
    CALM_TRY(calm_model_load_block(ctx, p->in.model, index, &block));
    if (plan)
        CALM_TRY(calm_plan_apply(&override, ctx, index, &block));
    CALM_TRY(calm_batch_block(ctx, &block, &p->rope, &batch, NULL));
    CALM_TRY(calm_batch_drop_carried(ctx, &batch));
    *output = batch.hidden.data;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, *delta, rows->rows * hidden));
    /* The delta is scored too, because a large residual stream hides in the output what the block adds. */
    for (size_t w = 0; w < rows->n; w++) {
        const size_t row = calm_batch_row(rows, w), n = calm_batch_tokens(rows, w) * hidden;
        const float *before = rows->hidden.data + row * rows->width;
        for (size_t i = 0; i < n; i++)
            (*delta)[row * hidden + i] = (*output)[row * hidden + i] - before[i];
    }
    return CALM_OK;
}

/* Tasks that compare both outputs of a block with the float ones. */
typedef struct block_task {
    calm_score_ref *const *references;    /* [2] of output and delta */
    float *const *found;                  /* [2] output and delta, [n, D] */
    calm_scores scores[2];
} block_task;

static calm_status score_output(calm_ctx *ctx, size_t i, void *user)
{
    block_task *task = user;
    return score(ctx, task->references[i], task->found[i], &task->scores[i]);
}

/* Scores the block with every job quantized by one entry, at both points. */
static calm_status score_entry(calm_ctx *ctx, calm_run *p, size_t index, size_t entry, const calm_batch *rows,
                               calm_score_ref *const references[2])
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    float *found[2];
    size_t *choice;
    calm_plan plan;
    block_task task = {.references = references, .found = found};
    CALM_TRY(calm_choice_uniform(ctx, &p->in, entry, &choice));
    CALM_TRY(calm_plan_of_choice(ctx, &p->in, choice, &plan));
    CALM_TRY(run_block(ctx, p, index, &plan, rows, &found[0], &found[1]));
    CALM_TRY(calm_parallel_for(ctx, 2, score_output, &task));
    const size_t begin = layout->block_begin[index], end = layout->block_begin[index + 1];
    CALM_TRY(keep(ctx, p, begin, end, entry, CALM_POINT_BLOCK, &task.scores[0]));
    return keep(ctx, p, begin, end, entry, CALM_POINT_DELTA, &task.scores[1]);
}

calm_status calm_block_score_whole(calm_ctx *ctx, calm_run *p, size_t index, const calm_batch *rows)
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    const size_t begin = layout->block_begin[index], end = layout->block_begin[index + 1];
    calm_score_ref *references[2];
    float *y[2];
    if (rows->rows < CALM_LEAST_SCORE_ROWS)
        return CALM_OK;
    CALM_TRY(run_block(ctx, p, index, NULL, rows, &y[0], &y[1]));
    for (int i = 0; i < 2; i++)
        CALM_TRY(calm_score_prepare(ctx, y[i], rows->rows, rows->width - rows->carried, &references[i]));
    /* References stay in the caller's arena; block and outputs of an entry are freed before the next. */
    CALM_SCOPED_RESULTS(ctx);
    for (size_t entry = 0; entry < p->in.recipe->n_pool; entry++) {
        if (calm_run_lacks_score(p, begin, end, entry, CALM_POINT_BLOCK)
            || calm_run_lacks_score(p, begin, end, entry, CALM_POINT_DELTA))
            CALM_TRY(score_entry(ctx, p, index, entry, rows, references));
        calm_arena_clear(ctx->out);
    }
    return CALM_OK;
}
