/* The divergence of a whole model from the float one, on one window or several short ones, with gradients.
 *
 * Memory holds all blocks as codes and scales, a byte per weight, but only one decoded block with gradients.  The
 * forward pass keeps only the input of each block; the backward pass runs a block again before its gradients. */
#include <math.h>
#include <string.h>

#include "ptq/eval/encode_back.h"
#include "ptq/eval/predict_back.h"
#include "ptq/layers/norm_back.h"
#include "ptq/learn/learn_impl.h"
#include "ptq/tensor/bf16_product.h"

/* Number of tokens of a step with sentences, because the gradient of one sentence is mostly noise. */
#define STEP_TOKENS ((size_t)512)

/* ---- one step ---- */

/* Prepares a block to run: a tuned block with its weights decoded, or else the float block, loaded into `arena`. */
static calm_status take_block(calm_ctx *ctx, const calm_tuning *s, size_t b, calm_arena *arena, calm_block *out)
{
    CALM_SCOPED_OUT(ctx, arena);
    if (!s->tunes[b])
        return calm_model_load_block(ctx, s->of.p->in.model, b, out);
    *out = s->views[b].block;
    calm_learn_view_decode(ctx, &s->views[b]);
    return CALM_OK;
}

/* Returns the index of window w in the arrays of a step that begins at window `first`. */
static size_t place(const calm_tuning *s, size_t first, size_t w)
{
    return (calm_batch_row(&s->floats, w) - calm_batch_row(&s->floats, first)) * s->floats.width;
}

/* Runs windows first .. end - 1 forward, from their embeddings to s->inputs[n_blocks]. */
static calm_status forward(calm_ctx *ctx, const calm_tuning *s, size_t first, size_t end)
{
    const calm_windows *windows = &s->of.p->in.calib;
    const calm_model *model = s->of.p->in.model;
    for (size_t w = first; w < end; w++) {
        const calm_span span = calm_batch_span(&s->floats, w);
        CALM_TRY(calm_model_embed(ctx, model, windows->ids + windows->begin[w], NULL, &span,
                                  s->inputs[0] + place(s, first, w)));
    }
    for (size_t b = 0; b < calm_model_config(model)->n_blocks; b++) {
        calm_block block;
        CALM_SCOPED_ARENA(arena);
        CALM_TRY(take_block(ctx, s, b, &arena, &block));
        for (size_t w = first; w < end; w++) {
            const calm_span span = calm_batch_span(&s->floats, w);
            const size_t at = place(s, first, w);
            calm_block_tape *tape;
            CALM_SCOPED_SCRATCH(ctx);
            CALM_TRY(calm_block_forward_tape(ctx, &block, &s->of.p->rope, s->inputs[b] + at, &span,
                                             s->inputs[b + 1] + at, &tape));
        }
    }
    return CALM_OK;
}

/* Decoders: computes the mean of KL(float || model) over the predictions of window w, and its gradient d; `last`:
 * hidden states before the final norm. */
static calm_status predictions(calm_ctx *ctx, calm_tuning *s, size_t w, const float *last, float *d, double *kl)
{
    const size_t n = calm_batch_tokens(&s->floats, w), width = s->floats.width, count = n - 1;
    const calm_norm *norm = &s->set.models[1].head.norm;
    CALM_SCOPED_SCRATCH(ctx);
    float *h, *y, *dh = NULL;
    *kl = 0;
    if (n < 2) {    /* the last window of a text may predict nothing */
        if (d)
            memset(d, 0, n * width * sizeof *d);
        return CALM_OK;
    }
    CALM_TRY(calm_learn_rows(ctx, &s->floats, w, &y));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, h, n * width));
    calm_norm_rows(norm, last, n, h);
    /* A separate array, because the backward pass reads h again. */
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

/* Encoders: computes 1 - cosine of the embedding of window w, and `share` of its gradient; `last`: hidden states before
 * the final norm. */
static calm_status embedding(calm_ctx *ctx, calm_tuning *s, size_t w, const float *last, double share, float *d,
                             double *loss)
{
    const size_t n = calm_batch_tokens(&s->floats, w), width = s->floats.width;
    float *h = (float *)(uintptr_t)last, *dh = d, *y;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_learn_rows(ctx, &s->floats, w, &y));
    if (s->norm.w) {
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, h, n * width));
        calm_norm_rows(&s->norm, last, n, h);
        if (d)
            CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, dh, n * width));
    }
    CALM_TRY(calm_embedding_back(ctx, &s->pooling, h, y, n, share, loss, dh));
    return d && s->norm.w
               ? calm_norm_back(ctx, &s->norm, (calm_norm_rows_of){n, 1, width}, last, dh, NULL, NULL, d)
               : CALM_OK;
}

/* Computes the mean of this loss over windows first .. end - 1. */
static calm_status embeddings(calm_ctx *ctx, calm_tuning *s, size_t first, size_t end, float *d, double *loss)
{
    const float *last = s->inputs[calm_model_config(s->of.p->in.model)->n_blocks];
    const double share = 1 / (double)(end - first);
    *loss = 0;
    for (size_t w = first; w < end; w++) {
        const size_t at = place(s, first, w);
        double one;
        CALM_TRY(embedding(ctx, s, w, last + at, share, d ? d + at : NULL, &one));
        *loss += one * share;
    }
    return CALM_OK;
}

calm_status calm_tuning_divergence(calm_ctx *ctx, calm_tuning *s, size_t first, size_t end, float *d, double *loss)
{
    CALM_TRY(forward(ctx, s, first, end));
    if (calm_inputs_encode(&s->of.p->in))
        return embeddings(ctx, s, first, end, d, loss);
    return predictions(ctx, s, first, s->inputs[calm_model_config(s->of.p->in.model)->n_blocks], d, loss);
}

/* Runs the float block on window w, to get its tape. */
static calm_status refer(calm_ctx *ctx, const calm_tuning *s, const calm_block *block, size_t w,
                         const calm_block_tape **out)
{
    const calm_span span = calm_batch_span(&s->entering, w);
    calm_block_tape *tape;
    float *x, *z;
    CALM_TRY(calm_learn_rows(ctx, &s->entering, w, &x));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, z, span.n_tokens * s->entering.width));
    CALM_TRY(calm_block_forward_tape(ctx, block, &s->of.p->rope, x, &span, z, &tape));
    *out = tape;
    return CALM_OK;
}

calm_status calm_tuning_back(calm_ctx *ctx, calm_tuning *s, size_t b, size_t first, size_t end, float *d)
{
    const calm_learn_view *view = s->tunes[b] ? &s->views[b] : NULL;
    const bool relates = s->mini && b + 1 == calm_model_config(s->of.p->in.model)->n_blocks;
    calm_block_grads grads = view ? view->grads : (calm_block_grads){.relations = NULL};
    calm_relations relations = {.scale = 1 / (double)(end - first), .loss = &s->relations};
    calm_block block, reference;
    CALM_SCOPED_ARENA(arena);
    CALM_TRY(take_block(ctx, s, b, &arena, &block));
    if (relates) {
        CALM_SCOPED_OUT(ctx, &arena);
        CALM_TRY(calm_model_load_block(ctx, s->of.p->in.model, b, &reference));
        grads.relations = &relations;
        s->relations = 0;
    }
    if (view)
        calm_learn_view_clear(view);
    for (size_t w = first; w < end; w++) {
        const calm_span span = calm_batch_span(&s->floats, w);
        const size_t at = place(s, first, w);
        calm_block_tape *tape;
        float *z;
        CALM_SCOPED_SCRATCH(ctx);
        if (relates)
            CALM_TRY(refer(ctx, s, &reference, w, &relations.reference));
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, z, span.n_tokens * s->floats.width));
        /* Relations are a loss, which both blocks compute alike. */
        CALM_SCOPED_OPERANDS(ctx, relates ? ctx->operands : calm_bf16_of_steps(ctx->operands));
        CALM_TRY(calm_block_forward_tape(ctx, &block, &s->of.p->rope, s->inputs[b] + at, &span, z, &tape));
        CALM_TRY(calm_block_back(ctx, &block, &s->of.p->rope, tape, d + at, &grads, b > s->first ? d + at : NULL));
    }
    if (view)
        calm_learn_view_complete(view);
    return CALM_OK;
}

/* ---- begin ---- */

size_t calm_tuning_end(const calm_run *p, size_t first, size_t end)
{
    return calm_inputs_encode(&p->in) ? calm_windows_range_end(&p->in.calib, first, end, STEP_TOKENS) : first + 1;
}

size_t calm_tuning_rows(const calm_run *p)
{
    return calm_inputs_encode(&p->in) ? STEP_TOKENS + p->in.calib.longest : p->in.calib.longest;
}

/* Opens views of the blocks and their tuning states, and allocates the memory of a pass. */
static calm_status open_blocks(calm_ctx *ctx, calm_tuning *s)
{
    const calm_model *model = s->of.p->in.model;
    const calm_learn_view_options options = {.room = &s->room, .biases = calm_inputs_encode(&s->of.p->in)};
    const size_t n_blocks = calm_model_config(model)->n_blocks, longest = s->of.p->in.calib.longest;
    const size_t rows = calm_tuning_rows(s->of.p);
    CALM_TRY(calm_learn_room_new(ctx, model, &s->room));
    CALM_TRY(CALM_NEW(ctx, ctx->out, s->views, n_blocks));
    CALM_TRY(CALM_NEW(ctx, ctx->out, s->tunes, n_blocks));
    CALM_TRY(CALM_NEW(ctx, ctx->out, s->inputs, n_blocks + 1));
    CALM_TRY(CALM_NEW(ctx, ctx->out, s->targets, longest));
    for (size_t b = 0; b <= n_blocks; b++)
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, s->inputs[b], rows * s->floats.width));
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

/* Runs s->floats from its embeddings to the final hidden states; with `mini` copies s->entering before the last block.
 * */
static calm_status run_floats(calm_ctx *ctx, calm_tuning *s, const calm_head *head)
{
    const calm_run *p = s->of.p;
    const size_t last = calm_model_config(p->in.model)->n_blocks - 1, from = s->mini ? last : 0;
    for (size_t b = 0; b < from; b++)
        CALM_TRY(calm_batch_load_block(ctx, p->in.model, &p->rope, b, NULL, NULL, &s->floats));
    if (s->mini)
        CALM_TRY(calm_batch_copy(ctx, &s->floats, s->floats.n, ctx->out, p->spill_dir, &s->entering));
    return calm_batch_finish(ctx, p->in.model, &p->rope, head, from, NULL, NULL, &s->floats);
}

calm_status calm_tuning_open(calm_ctx *ctx, calm_tuning *s)
{
    const calm_run *p = s->of.p;
    s->subjects[0] = s->subjects[1] = (calm_subject){.model = p->in.model};
    calm_head head;
    if (calm_inputs_encode(&p->in)) {
        CALM_TRY(calm_model_load_head(ctx, p->in.model, &head));
        CALM_TRY(calm_pooling_load(ctx, calm_model_config(p->in.model), &s->pooling));
        s->norm = head.norm;
    } else {
        CALM_TRY(calm_predictors_open(ctx, &s->subjects[0], &s->subjects[1], 1, p->in.calib.longest, &s->set));
        head = s->set.models[0].head;
    }
    CALM_TRY(calm_batch_embed(ctx, p->in.model, &p->in.calib, 0, p->in.calib.n, ctx->out, p->spill_dir, &s->floats));
    CALM_TRY(run_floats(ctx, s, &head));
    return open_blocks(ctx, s);
}
