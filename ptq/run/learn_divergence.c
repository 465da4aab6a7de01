/* The divergence of a whole model from the float one, on one window, with gradients.
 *
 * All blocks are held as codes and scales, a byte a weight.  One block at a time is decoded and has gradients: forward
 * only what enters each block is kept, and backward the block runs again before its gradients are computed. */
#include <math.h>
#include <string.h>

#include "ptq/eval/predict_back.h"
#include "ptq/model/norm_back.h"
#include "ptq/run/learn_impl.h"

/* ---- one window ---- */

/* The block that runs: a tuned one with its weights decoded, or as the plan has it, loaded into `arena`. */
static calm_status take_block(calm_ctx *ctx, const calm_tuning *s, size_t b, calm_arena *arena, calm_block *out)
{
    CALM_SCOPED_OUT(ctx, arena);
    if (!s->tunes[b])
        return calm_model_load_block(ctx, s->of.p->in.model, b, out);
    *out = s->views[b].block;
    return calm_learn_view_decode(ctx, &s->views[b]);
}

/* Window `w` from its embeddings to s->inputs[n_blocks]. */
static calm_status forward(calm_ctx *ctx, const calm_tuning *s, size_t w, const calm_span *span)
{
    const calm_windows *windows = &s->of.p->in.calib;
    const calm_model *model = s->of.p->in.model;
    CALM_TRY(calm_model_embed(ctx, model, windows->ids + windows->begin[w], NULL, span, s->inputs[0]));
    for (size_t b = 0; b < calm_model_config(model)->n_blocks; b++) {
        calm_block block;
        calm_block_tape *tape;
        CALM_SCOPED_ARENA(arena);
        CALM_SCOPED_SCRATCH(ctx);
        CALM_TRY(take_block(ctx, s, b, &arena, &block));
        CALM_TRY(calm_block_forward_tape(ctx, &block, &s->of.p->rope, s->inputs[b], span, s->inputs[b + 1], &tape));
    }
    return CALM_OK;
}

calm_status calm_tuning_divergence(calm_ctx *ctx, calm_tuning *s, size_t w, float *d, double *kl)
{
    const calm_span span = calm_batch_span(&s->floats, w);
    const size_t n = span.n_tokens, width = s->floats.width, count = n - 1;
    const calm_norm *norm = &s->set.models[1].head.norm;
    const float *last = s->inputs[calm_model_config(s->of.p->in.model)->n_blocks];
    CALM_SCOPED_SCRATCH(ctx);
    float *h, *y, *dh = NULL;
    CALM_TRY(forward(ctx, s, w, &span));
    *kl = 0;
    if (n < 2) {    /* the last window of a text: it predicts nothing */
        if (d)
            memset(d, 0, n * width * sizeof *d);
        return CALM_OK;
    }
    CALM_TRY(calm_learn_rows(ctx, &s->floats, w, &y));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, h, n * width));
    calm_norm_rows(norm, last, n, h);
    /* Not h itself: the backward pass reads that again. */
    if (d)
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, dh, n * width));
    const calm_row_store rows[2] = {{n, width, y, -1}, {n, width, h, -1}};
    for (int m = 0; m < 2; m++) {
        s->set.models[m].hidden = &rows[m];
        CALM_TRY(CALM_NEW(ctx, ctx->scratch, s->set.models[m].rows, n));
    }
    /* The last token of a window predicts nothing. */
    s->targets[count] = CALM_NO_TARGET;
    calm_status status = calm_predict(ctx, &s->set, s->targets, n);
    if (status == CALM_OK && d)
        status = calm_predict_back(ctx, &s->set, s->targets, n, 1 / (float)count, dh);
    s->targets[count] = 0;
    CALM_TRY(status);
    for (size_t t = 0; t < count; t++)
        *kl += calm_prediction_kl(&s->set.models[0].rows[t], &s->set.models[1].rows[t]) / (double)count;
    if (!isfinite(*kl))
        return calm_fail(ctx, CALM_ENUMERIC, "the divergence of window %zu is %g", w, *kl);
    return d ? calm_norm_back(ctx, norm, (calm_norm_rows_of){n, 1, width}, last, dh, NULL, NULL, d) : CALM_OK;
}

calm_status calm_tuning_back(calm_ctx *ctx, const calm_tuning *s, size_t b, size_t w, float *d)
{
    const calm_learn_view *view = s->tunes[b] ? &s->views[b] : NULL;
    const calm_span span = calm_batch_span(&s->floats, w);
    calm_block block;
    calm_block_tape *tape;
    float *z;
    CALM_SCOPED_ARENA(arena);
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(take_block(ctx, s, b, &arena, &block));
    if (view)
        calm_learn_view_clear(view);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, z, span.n_tokens * s->floats.width));
    CALM_TRY(calm_block_forward_tape(ctx, &block, &s->of.p->rope, s->inputs[b], &span, z, &tape));
    CALM_TRY(calm_block_back(ctx, &block, &s->of.p->rope, tape, d, view ? &view->grads : NULL,
                             b > s->first ? d : NULL));
    if (view)
        calm_learn_view_complete(view);
    return CALM_OK;
}

/* ---- begin ---- */

/* Views of the blocks, their states, and room for a pass. */
static calm_status open_blocks(calm_ctx *ctx, calm_tuning *s)
{
    const calm_model *model = s->of.p->in.model;
    const calm_learn_view_options options = {.room = &s->room};
    const size_t n_blocks = calm_model_config(model)->n_blocks, longest = s->of.p->in.calib.longest;
    CALM_TRY(calm_learn_room_new(ctx, model, &s->room));
    CALM_TRY(CALM_NEW(ctx, ctx->out, s->views, n_blocks));
    CALM_TRY(CALM_NEW(ctx, ctx->out, s->tunes, n_blocks));
    CALM_TRY(CALM_NEW(ctx, ctx->out, s->inputs, n_blocks + 1));
    CALM_TRY(CALM_NEW(ctx, ctx->out, s->targets, longest));
    for (size_t b = 0; b <= n_blocks; b++)
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, s->inputs[b], longest * s->floats.width));
    for (size_t b = n_blocks; b-- > 0;) {
        calm_learn_view *view = &s->views[b];
        if (!s->of.blocks[b])
            continue;
        s->first = b;
        CALM_TRY(calm_learn_view_open(ctx, model, s->of.start, b, &options, view));
        CALM_TRY(calm_tune_new(ctx, view->linears, view->n_linears, view->vectors, view->n_vectors, &s->tunes[b]));
    }
    return CALM_OK;
}

calm_status calm_tuning_open(calm_ctx *ctx, calm_tuning *s)
{
    const calm_run *p = s->of.p;
    s->subjects[0] = s->subjects[1] = (calm_subject){.model = p->in.model};
    CALM_TRY(calm_predictors_open(ctx, &s->subjects[0], &s->subjects[1], 1, p->in.calib.longest, &s->set));
    CALM_TRY(calm_batch_embed(ctx, p->in.model, &p->in.calib, 0, p->in.calib.n, ctx->out, p->spill_dir, &s->floats));
    CALM_TRY(calm_batch_finish(ctx, p->in.model, &p->rope, &s->set.models[0].head, 0, NULL, NULL, &s->floats));
    return open_blocks(ctx, s);
}
