/* Sensitivities of all units from one backward pass.
 *
 * With e_t the error that a quantized unit leaves in row t of its block's output the divergence of the model is, to the
 * second order, 1/2 sum e_t^T H_ts e_s, H = J^T F J of the predictions behind it (ptq/eval/predict_sample.h).
 * d = J^T v of a random v has H in the mean, so that (sum_t d_t . e_t)^2 / 2 is right in the mean, but one number of
 * one degree of freedom a window.  The errors of different rows are nearly uncorrelated: the terms t = s alone,
 *
 *   KL = 1/2 sum_t (d_t . e_t)^2
 *
 * have one for each token, and leave out little (docs/measured.md).  d of a block's output serves every unit of the
 * block and every candidate; e is measured, so that what is not linear within the block is in it. */
#include <math.h>

#include "ptq/base/threads.h"
#include "ptq/eval/predict_sample.h"
#include "ptq/model/block_back.h"
#include "ptq/model/norm_back.h"
#include "ptq/plan/assemble.h"
#include "ptq/run/block_work.h"
#include "ptq/run/sensitivity_gradient.h"
#include "ptq/tensor/vector.h"

/* Of the draws. */
#define STREAM 1

typedef struct gradient_pass {
    calm_run *p;
    calm_unit unit;
    const calm_probe *probes;    /* [n] */
    double *sums;                /* [n] of squares */
    size_t n, first_block;       /* the first block that has a probe */
    calm_windows windows;
    calm_predictors set;         /* the float model's head */
    calm_batch *inputs;          /* [n_blocks + 1] of the windows in work: what enters each block */
    calm_batch work;             /* of the same windows */
    float *d;                    /* [rows, D] the gradient of what leaves the block in work */
    size_t done, total;          /* blocks that were run, for progress */
} gradient_pass;

static void tick(gradient_pass *s)
{
    calm_event(&s->p->events, CALM_STAGE_PROBE, ++s->done, s->total);
}

/* The windows through the float model; s->work = its normalised last rows. */
static calm_status run_float(calm_ctx *ctx, gradient_pass *s, size_t first, size_t n, calm_arena *arena)
{
    const calm_model *model = s->p->in.model;
    const size_t n_blocks = calm_model_config(model)->n_blocks;
    CALM_TRY(calm_batch_embed(ctx, model, &s->windows, first, n, arena, NULL, &s->inputs[0]));
    for (size_t b = 0; b < n_blocks; b++) {
        CALM_TRY(calm_batch_copy(ctx, &s->inputs[b], n, arena, NULL, &s->inputs[b + 1]));
        CALM_TRY(calm_batch_load_block(ctx, model, &s->p->rope, b, NULL, NULL, &s->inputs[b + 1]));
        tick(s);
    }
    CALM_TRY(calm_batch_copy(ctx, &s->inputs[n_blocks], n, arena, NULL, &s->work));
    return calm_batch_norm(ctx, &s->set.models[0].head.norm, &s->work);
}

/* d = the gradient of what leaves the last block, of predictions in directions drawn at random. */
static calm_status draw(calm_ctx *ctx, gradient_pass *s)
{
    const calm_batch *last = &s->inputs[calm_model_config(s->p->in.model)->n_blocks];
    const size_t rows = last->rows;
    calm_predictor *model = &s->set.models[0];
    float *x;
    uint32_t *targets;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, targets, rows));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, model->rows, rows));
    /* The last token of a window predicts nothing. */
    for (size_t w = 0; w < last->n; w++)
        targets[calm_batch_row(last, w) + calm_batch_tokens(last, w) - 1] = CALM_NO_TARGET;
    model->hidden = &s->work.hidden;
    CALM_TRY(calm_predict(ctx, &s->set, targets, rows));
    CALM_TRY(calm_predict_sample_back(ctx, &s->set, targets, rows, s->windows.begin[last->first], STREAM, s->d));
    CALM_TRY(calm_row_store_get(ctx, &last->hidden, 0, rows, &x));
    return calm_norm_back(ctx, &model->head.norm, (calm_norm_rows_of){rows, 1, last->width}, x, s->d, NULL, NULL, s->d);
}

/* Add the windows in work to the estimate of probe `i`, a unit of block `b`. */
static calm_status add_probe(calm_ctx *ctx, gradient_pass *s, size_t i, size_t b)
{
    const calm_model *model = s->p->in.model;
    const size_t width = s->work.width, rows = s->work.rows;
    calm_trial trial;
    float *y, *z;
    CALM_SCOPED_ARENA(plan);
    CALM_SCOPED_OUT(ctx, &plan);
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_run_probe_trial(ctx, s->p, s->unit, &s->probes[i], &trial));
    calm_plan_override override = {model, &trial.plan};
    CALM_TRY(calm_batch_assign(ctx, &s->inputs[b], &s->work));
    CALM_TRY(calm_batch_load_block(ctx, model, &s->p->rope, b, calm_plan_apply, &override, &s->work));
    CALM_TRY(calm_row_store_get(ctx, &s->work.hidden, 0, rows, &z));
    CALM_TRY(calm_row_store_get(ctx, &s->inputs[b + 1].hidden, 0, rows, &y));
    for (size_t t = 0; t < rows; t++) {
        calm_vec_axpy(width, -1, y + t * width, z + t * width);
        const double along = calm_vec_dot(width, s->d + t * width, z + t * width);
        s->sums[i] += along * along;
    }
    tick(s);
    return CALM_OK;
}

/* One block over all windows in work; a task writes its window's rows of d alone. */
typedef struct back_task {
    gradient_pass *s;
    const calm_batch *in;
    const calm_block *block;
} back_task;

static calm_status back_window(calm_ctx *ctx, size_t w, void *user)
{
    const back_task *task = user;
    const calm_rope *rope = &task->s->p->rope;
    const calm_span span = calm_batch_span(task->in, w);
    const size_t row = calm_batch_row(task->in, w), width = task->in->width;
    float *x, *z, *d = task->s->d + row * width;
    calm_block_tape *tape;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, z, span.n_tokens * width));
    CALM_TRY(calm_row_store_get(ctx, &task->in->hidden, row, span.n_tokens, &x));
    CALM_TRY(calm_block_forward_tape(ctx, task->block, rope, x, &span, z, &tape));
    return calm_block_back(ctx, task->block, rope, tape, d, NULL, d);
}

/* d from what leaves block `b` to what enters it. */
static calm_status back(calm_ctx *ctx, gradient_pass *s, size_t b)
{
    calm_block block;
    back_task task = {s, &s->inputs[b], &block};
    CALM_SCOPED_ARENA(arena);
    CALM_SCOPED_OUT(ctx, &arena);
    CALM_TRY(calm_model_load_block(ctx, s->p->in.model, b, &block));
    CALM_TRY(calm_parallel_for(ctx, task.in->n, back_window, &task));
    tick(s);
    return CALM_OK;
}

static calm_status run_group(calm_ctx *ctx, gradient_pass *s, size_t first, size_t n)
{
    const calm_layout *layout = calm_model_layout(s->p->in.model);
    CALM_SCOPED_ARENA(rows);
    CALM_TRY(run_float(ctx, s, first, n, &rows));
    CALM_TRY(CALM_NEW_RAW(ctx, &rows, s->d, s->work.rows * s->work.width));
    CALM_TRY(draw(ctx, s));
    for (size_t b = calm_model_config(s->p->in.model)->n_blocks; b-- > s->first_block;) {
        for (size_t i = 0; i < s->n; i++)
            if (layout->jobs[s->probes[i].job].block == b)
                CALM_TRY(add_probe(ctx, s, i, b));
        if (b > s->first_block)
            CALM_TRY(back(ctx, s, b));
    }
    return CALM_OK;
}

/* Those probes whose candidates are there and have no estimate yet, into s; their codes, should they have been
 * dropped, are computed again. */
static calm_status list_unknown(calm_ctx *ctx, gradient_pass *s, const calm_probe *probes, size_t n)
{
    const calm_layout *layout = calm_model_layout(s->p->in.model);
    calm_probe *of;
    CALM_TRY(CALM_NEW(ctx, ctx->out, of, n));
    s->probes = of;
    s->first_block = calm_model_config(s->p->in.model)->n_blocks;
    for (size_t i = 0; i < n; i++) {
        const calm_candidate *candidate = calm_candidate_at(&s->p->in, probes[i].job, probes[i].entry);
        CALM_SCOPED_ARENA(plan);
        CALM_SCOPED_OUT(ctx, &plan);
        calm_trial trial;
        CALM_TRY(calm_run_probe_trial(ctx, s->p, s->unit, &probes[i], &trial));
        if (trial.missing || isfinite(candidate->scores.value[calm_unit_point(s->unit)][CALM_SCORE_GRADIENT_KL]))
            continue;
        calm_run_want(&trial.plan);
        of[s->n++] = probes[i];
        s->first_block = calm_size_min(s->first_block, layout->jobs[probes[i].job].block);
    }
    return calm_run_restore(ctx, s->p);
}

/* All groups of windows; the estimates become scores together. */
static calm_status run_all(calm_ctx *ctx, gradient_pass *s)
{
    const calm_config *config = calm_model_config(s->p->in.model);
    const calm_subject subject = {.model = s->p->in.model};
    const size_t at_once = calm_run_gradient_windows(s->p);
    const size_t n_groups = (s->windows.n + at_once - 1) / at_once;
    const double tokens = (double)(s->windows.begin[s->windows.n] - s->windows.n);
    s->total = n_groups * (config->n_blocks + s->n + config->n_blocks - s->first_block - 1);
    CALM_TRY(calm_predictors_open(ctx, NULL, &subject, 1, s->windows.longest, &s->set));
    CALM_TRY(CALM_NEW(ctx, ctx->out, s->inputs, config->n_blocks + 1));
    CALM_TRY(CALM_NEW(ctx, ctx->out, s->sums, s->n));
    for (size_t first = 0; first < s->windows.n; first += at_once)
        CALM_TRY(run_group(ctx, s, first, calm_size_min(s->windows.n - first, at_once)));
    CALM_TRY(calm_store_begin(ctx, s->p->in.store));
    for (size_t i = 0; i < s->n && ctx->status == CALM_OK; i++)
        calm_run_probe_keep(ctx, s->p, s->unit, &s->probes[i], CALM_SCORE_GRADIENT_KL, s->sums[i] / 2 / tokens);
    return calm_store_end(ctx, s->p->in.store);
}

calm_status calm_run_gradient(calm_ctx *ctx, calm_run *p, calm_unit unit, const calm_probe *probes, size_t n)
{
    gradient_pass s = {.p = p, .unit = unit};
    CALM_SCOPED_ARENA(state);
    CALM_TRY(calm_windows_slice(ctx, &p->in.calib, 0, calm_run_gradient_held(p), &s.windows));
    if (s.windows.longest < 2)
        return calm_fail(ctx, CALM_EARG, "`choice.sensitivity` gradient is of predictions; windows of one token have "
                         "none (`calibration.seqlen`)");
    CALM_SCOPED_OUT(ctx, &state);
    CALM_TRY(list_unknown(ctx, &s, probes, n));
    if (s.n)
        CALM_TRY(run_all(ctx, &s));
    calm_event_complete(&p->events, CALM_STAGE_PROBE);
    return CALM_OK;
}
