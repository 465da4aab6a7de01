/* Gradients of the float model: blocks from the last to the first, groups of windows one after the other. */
#include "ptq/search/search_impl.h"

#include "ptq/base/threads.h"
#include "ptq/eval/predict_sample.h"
#include "ptq/layers/block_back.h"
#include "ptq/layers/norm_back.h"
#include "ptq/tensor/dtype.h"

/* The stream of random signs. */
#define STREAM 1
/* The most bytes of hidden states of all blocks together; more windows run group by group. */
#define MOST_BYTES ((size_t)256 << 20)

void calm_gradient_pass_tick(calm_gradient_pass *s)
{
    calm_event(&s->run->events, s->stage, ++s->done, s->total);
}

/* Fails if a block's output is not finite: a message with the block helps more than a failure of the head. */
static calm_status check_rows(calm_ctx *ctx, const calm_batch *batch, size_t block)
{
    const size_t n = batch->rows * batch->width;
    float *x;
    CALM_TRY(calm_row_store_get(ctx, &batch->hidden, 0, batch->rows, &x));
    const size_t at = calm_find_nonfinite(x, n);
    if (at == n)
        return CALM_OK;
    return calm_fail(ctx, CALM_ENUMERIC, "block %zu: the output is not finite (calibration token %zu, channel %zu)",
                     block, batch->windows->begin[batch->first] + at / batch->width, at % batch->width);
}

/* Runs the windows through the float model; s->work: the normalized output of the last block. */
static calm_status run_float(calm_ctx *ctx, calm_gradient_pass *s, size_t first, size_t n, calm_arena *arena)
{
    const calm_model *model = s->run->in.model;
    const size_t n_blocks = calm_model_config(model)->n_blocks;
    CALM_TRY(calm_batch_embed(ctx, model, &s->windows, first, n, arena, NULL, &s->inputs[0]));
    for (size_t b = 0; b < n_blocks; b++) {
        CALM_TRY(calm_batch_copy(ctx, &s->inputs[b], n, arena, NULL, &s->inputs[b + 1]));
        CALM_TRY(calm_batch_load_block(ctx, model, &s->run->rope, b, NULL, NULL, &s->inputs[b + 1]));
        CALM_TRY(check_rows(ctx, &s->inputs[b + 1], b));
        calm_gradient_pass_tick(s);
    }
    CALM_TRY(calm_batch_copy(ctx, &s->inputs[n_blocks], n, arena, NULL, &s->work));
    return calm_batch_norm(ctx, &s->set.models[0].head.norm, &s->work);
}

/* Computes d, the gradient of the last block's output for predictions in random directions. */
static calm_status draw(calm_ctx *ctx, calm_gradient_pass *s)
{
    const calm_batch *last = &s->inputs[calm_model_config(s->run->in.model)->n_blocks];
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

/* One block over all windows of the group; a task writes only its window's rows of d, and their lengths. */
typedef struct back_task {
    calm_gradient_pass *s;
    const calm_batch *in;
    const calm_block *block;
} back_task;

static calm_status back_window(calm_ctx *ctx, size_t w, void *user)
{
    const back_task *task = user;
    const calm_gradient_pass *s = task->s;
    const calm_rope *rope = &s->run->rope;
    const calm_span span = calm_batch_span(task->in, w);
    const size_t row = calm_batch_row(task->in, w), width = task->in->width;
    float *x, *z, *d = s->d + row * width;
    calm_block_grads grads = {.router = NULL};
    calm_block_tape *tape;
    /* `lengths` has the rows of all windows, not only of the group. */
    for (calm_job_kind kind = 0; kind < CALM_N_JOBS && s->lengths; kind++)
        if (s->lengths[task->block->index * CALM_N_JOBS + kind])
            grads.lengths[kind] =
                s->lengths[task->block->index * CALM_N_JOBS + kind] + s->windows.begin[task->in->first + w];
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, z, span.n_tokens * width));
    CALM_TRY(calm_row_store_get(ctx, &task->in->hidden, row, span.n_tokens, &x));
    CALM_TRY(calm_block_forward_tape(ctx, task->block, rope, x, &span, z, &tape));
    return calm_block_back(ctx, task->block, rope, tape, d, &grads, d);
}

/* Computes d of the input of block `b` from d of its output. */
static calm_status back(calm_ctx *ctx, calm_gradient_pass *s, size_t b)
{
    calm_block block;
    back_task task = {s, &s->inputs[b], &block};
    CALM_SCOPED_RESULTS(ctx);
    CALM_TRY(calm_model_load_block(ctx, s->run->in.model, b, &block));
    CALM_TRY(calm_parallel_for(ctx, task.in->n, back_window, &task));
    calm_gradient_pass_tick(s);
    return CALM_OK;
}

static calm_status run_group(calm_ctx *ctx, calm_gradient_pass *s, size_t first, size_t n)
{
    CALM_SCOPED_ARENA(rows);
    CALM_TRY(run_float(ctx, s, first, n, &rows));
    CALM_TRY(CALM_NEW_RAW(ctx, &rows, s->d, s->work.rows * s->work.width));
    CALM_TRY(draw(ctx, s));
    /* d belongs to the output of block b.  The visit comes first: before first_block no gradient is computed. */
    for (size_t b = calm_model_config(s->run->in.model)->n_blocks; b-- > 0;) {
        if (s->visit)
            CALM_TRY(s->visit(ctx, s, b));
        if (b < s->first_block)
            break;
        CALM_TRY(back(ctx, s, b));
    }
    return CALM_OK;
}

calm_status calm_gradient_pass_run(calm_ctx *ctx, calm_gradient_pass *s)
{
    const calm_model *model = s->run->in.model;
    const size_t n_blocks = calm_model_config(model)->n_blocks;
    const size_t at_once = calm_gradient_pass_windows(s->run, s->n_windows);
    const calm_subject subject = {.model = model};
    CALM_SCOPED_RESULTS(ctx);
    CALM_TRY(calm_windows_slice(ctx, &s->run->in.calib, 0, s->n_windows, &s->windows));
    if (s->windows.longest < 2)
        return calm_fail(ctx, CALM_EARG, "`%s` gradient is of predictions; windows of one token have none "
                         "(`calibration.seqlen`)", s->key);
    s->done = 0;
    s->total = (s->n_windows + at_once - 1) / at_once * (n_blocks + s->n_visits + n_blocks - s->first_block);
    CALM_TRY(calm_predictors_open(ctx, NULL, &subject, 1, s->windows.longest, &s->set));
    CALM_TRY(CALM_NEW(ctx, ctx->out, s->inputs, n_blocks + 1));
    for (size_t first = 0; first < s->n_windows; first += at_once)
        CALM_TRY(run_group(ctx, s, first, calm_size_min(s->n_windows - first, at_once)));
    calm_event_complete(&s->run->events, s->stage);
    return CALM_OK;
}

/* ---- memory ---- */

/* Returns how many batches of hidden states the pass holds: the inputs of all blocks, the current one, the gradient,
 * and the gradient's share at the head. */
static size_t n_batches(const calm_config *config)
{
    return config->n_blocks + 5;
}

size_t calm_gradient_pass_windows(const calm_run *p, size_t n)
{
    const calm_config *config = calm_model_config(p->in.model);
    return calm_size_min(n, calm_batch_count(n, p->in.calib.longest, config->hidden * n_batches(config), MOST_BYTES));
}

size_t calm_gradient_pass_bytes(const calm_run *p, size_t n, size_t n_threads)
{
    const calm_model *model = p->in.model;
    const calm_config *config = calm_model_config(model);
    const size_t at_once = calm_gradient_pass_windows(p, n);
    const size_t longest = p->in.calib.longest, rows = at_once * longest, workers = calm_size_min(n_threads, at_once);
    const size_t output = CALM_BYTES(float, longest * config->hidden);
    size_t block = 0;
    for (size_t b = 0; b < config->n_blocks; b++) {
        const size_t expert = calm_model_load_expert_bytes(model, b);
        const size_t alone = calm_block_back_scratch_bytes(config, b, longest, expert, 1);
        /* Threads without a window help with the windows of others. */
        block = calm_size_max(block, workers * (alone + output) - alone +
                                     calm_block_back_scratch_bytes(config, b, longest, expert, n_threads));
    }
    const size_t head = CALM_BYTES(uint32_t, rows) + CALM_BYTES(calm_prediction, rows) +
                        calm_size_max(calm_predict_scratch_bytes(config, rows, false, n_threads),
                                      calm_predict_sample_back_scratch_bytes(config, rows, n_threads));
    return calm_predictors_open_bytes(config, 1, 1, longest) +
           n_batches(config) * calm_row_store_bytes(rows, config->hidden) + calm_size_max(head, block);
}
