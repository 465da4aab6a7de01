/* Forward pass over a batch of windows. */
#include "ptq/model/forward.h"

#include <string.h>

#include "ptq/base/threads.h"
#include "ptq/model/moe.h"

size_t calm_batch_row(const calm_batch *batch, size_t i)
{
    return batch->windows->begin[batch->first + i] - batch->windows->begin[batch->first];
}

size_t calm_batch_tokens(const calm_batch *batch, size_t i)
{
    return batch->windows->begin[batch->first + i + 1] - batch->windows->begin[batch->first + i];
}

calm_span calm_batch_span(const calm_batch *batch, size_t i)
{
    const calm_windows *windows = batch->windows;
    return (calm_span){.window = batch->first + i,
                       .n_tokens = calm_batch_tokens(batch, i),
                       .positions = windows->positions ? windows->positions + windows->begin[batch->first + i] : NULL};
}

/* ---- embedding ---- */

typedef struct embed_task {
    const calm_model *model;
    const calm_batch *batch;
} embed_task;

static calm_status embed_window(calm_ctx *ctx, size_t i, void *user)
{
    const embed_task *task = user;
    const calm_batch *batch = task->batch;
    const calm_windows *windows = batch->windows;
    const calm_span span = calm_batch_span(batch, i);
    const size_t at = windows->begin[span.window], row = calm_batch_row(batch, i);
    float *x;
    CALM_TRY(calm_row_store_get(ctx, &batch->hidden, row, span.n_tokens, &x));
    CALM_TRY(
        calm_model_embed(ctx, task->model, windows->ids + at, windows->types ? windows->types + at : NULL, &span, x));
    return calm_row_store_put(ctx, &batch->hidden, row, span.n_tokens, x);
}

calm_status calm_batch_embed(calm_ctx *ctx, const calm_model *model, const calm_windows *windows, size_t first,
                             size_t n, calm_arena *arena, const char *spill_dir, calm_batch *out)
{
    embed_task task = {model, out};
    *out = (calm_batch){.windows = windows, .first = first, .n = n, .width = calm_model_config(model)->hidden,
                        .spill_dir = spill_dir};
    out->rows = windows->begin[first + n] - windows->begin[first];
    CALM_TRY(calm_row_store_open(ctx, arena, out->rows, out->width, spill_dir, &out->hidden));
    const calm_status status = calm_parallel_for(ctx, n, embed_window, &task);
    if (status != CALM_OK)
        calm_batch_close(out);
    return status;
}

void calm_batch_close(calm_batch *batch)
{
    calm_row_store_close(&batch->hidden);
}

calm_status calm_batch_copy(calm_ctx *ctx, const calm_batch *from, size_t n, calm_arena *arena, const char *spill_dir,
                            calm_batch *out)
{
    *out = *from;
    out->n = n;
    out->rows = n ? calm_batch_row(from, n - 1) + calm_batch_tokens(from, n - 1) : 0;
    out->spill_dir = spill_dir;
    out->hidden = (calm_row_store){.file = -1};
    CALM_TRY(calm_row_store_open(ctx, arena, out->rows, out->width, spill_dir, &out->hidden));
    return calm_batch_assign(ctx, from, out);
}

calm_status calm_batch_assign(calm_ctx *ctx, const calm_batch *from, const calm_batch *to)
{
    for (size_t i = 0; i < to->n; i++) {
        const size_t row = calm_batch_row(to, i), n = calm_batch_tokens(to, i);
        calm_arena_mark mark = calm_arena_save(ctx->scratch);
        float *x, *y;
        CALM_TRY(calm_row_store_get(ctx, &from->hidden, row, n, &x));
        CALM_TRY(calm_row_store_get(ctx, &to->hidden, row, n, &y));
        memcpy(y, x, n * to->width * sizeof *x);
        CALM_TRY(calm_row_store_put(ctx, &to->hidden, row, n, y));
        calm_arena_rewind(ctx->scratch, mark);
    }
    return CALM_OK;
}

/* ---- blocks ---- */

typedef struct sublayer_task {
    const calm_block *block;
    calm_sublayer sublayer;    /* CALM_N_SUBLAYERS: both, one after the other */
    const calm_rope *rope;
    calm_batch *batch;
    const calm_observer *observer;
} sublayer_task;

static calm_status run_window(calm_ctx *ctx, size_t i, void *user)
{
    const sublayer_task *task = user;
    const calm_span span = calm_batch_span(task->batch, i);
    const size_t row = calm_batch_row(task->batch, i);
    float *x;
    CALM_TRY(calm_row_store_get(ctx, &task->batch->hidden, row, span.n_tokens, &x));
    if (task->sublayer == CALM_N_SUBLAYERS)
        CALM_TRY(calm_block_run(ctx, task->block, task->rope, x, &span, task->observer));
    else
        CALM_TRY(calm_block_sublayer(ctx, task->block, task->sublayer, task->rope, x, &span, task->observer));
    return calm_row_store_put(ctx, &task->batch->hidden, row, span.n_tokens, x);
}

calm_status calm_batch_sublayer(calm_ctx *ctx, const calm_block *block, calm_sublayer sublayer, const calm_rope *rope,
                                calm_batch *batch, const calm_observer *observer)
{
    sublayer_task task = {block, sublayer, rope, batch, observer};
    if (sublayer == CALM_SUBLAYER_MLP && block->moe.router)
        return calm_moe_run(ctx, block, batch, observer);
    return calm_parallel_for(ctx, batch->n, run_window, &task);
}

calm_status calm_batch_block(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, calm_batch *batch,
                             const calm_observer *observer)
{
    sublayer_task task = {block, CALM_N_SUBLAYERS, rope, batch, observer};
    if (!block->moe.router)
        return calm_parallel_for(ctx, batch->n, run_window, &task);
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
        CALM_TRY(calm_batch_sublayer(ctx, block, s, rope, batch, observer));
    return CALM_OK;
}

size_t calm_batch_block_scratch_bytes(const calm_config *config, size_t index, size_t n_windows, size_t longest,
                                      size_t expert_bytes, bool prepared, size_t n_threads)
{
    const size_t workers = calm_size_min(n_windows, n_threads);
    const size_t attention = calm_block_sublayer_scratch_bytes(config, CALM_SUBLAYER_ATTENTION, longest, prepared);
    const size_t mlp = config->moe.sparse[index]
                           ? calm_moe_run_scratch_bytes(config, n_windows, longest, expert_bytes, n_threads)
                           : workers * calm_block_sublayer_scratch_bytes(config, CALM_SUBLAYER_MLP, longest, prepared);
    return calm_size_max(workers * attention, mlp);
}

size_t calm_batch_count(size_t n_windows, size_t longest, size_t width, size_t most_bytes)
{
    size_t per_window = longest * width * sizeof(float);
    size_t n = per_window ? most_bytes / per_window : n_windows;
    return n < 1 ? 1 : n;
}

size_t calm_batch_windows(const calm_windows *windows, size_t width, size_t most_bytes)
{
    return calm_batch_count(windows->n, windows->longest, width, most_bytes);
}

typedef struct norm_task {
    const calm_norm *norm;
    calm_batch *batch;
} norm_task;

static calm_status norm_window(calm_ctx *ctx, size_t i, void *user)
{
    const norm_task *task = user;
    const size_t row = calm_batch_row(task->batch, i), n = calm_batch_tokens(task->batch, i);
    float *x;
    CALM_TRY(calm_row_store_get(ctx, &task->batch->hidden, row, n, &x));
    calm_norm_rows(task->norm, x, n, x);
    return calm_row_store_put(ctx, &task->batch->hidden, row, n, x);
}

calm_status calm_batch_norm(calm_ctx *ctx, const calm_norm *norm, calm_batch *batch)
{
    norm_task task = {norm, batch};
    return norm->w ? calm_parallel_for(ctx, batch->n, norm_window, &task) : CALM_OK;
}

calm_status calm_batch_forward(calm_ctx *ctx, const calm_model *model, const calm_rope *rope, const calm_head *head,
                               const calm_windows *windows, size_t first, size_t n, calm_override_fn *override,
                               void *user, calm_arena *arena, calm_batch *out)
{
    CALM_TRY(calm_batch_embed(ctx, model, windows, first, n, arena, NULL, out));
    calm_arena *caller = ctx->out, block_arena;
    calm_arena_init(&block_arena);
    ctx->out = &block_arena;
    calm_status status = CALM_OK;
    for (size_t i = 0; i < calm_model_config(model)->n_blocks && status == CALM_OK; i++) {
        calm_block block;
        status = calm_model_load_block(ctx, model, i, &block);
        if (status == CALM_OK && override)
            status = override(user, ctx, i, &block);
        if (status == CALM_OK)
            status = calm_batch_block(ctx, &block, rope, out, NULL);
        calm_arena_clear(&block_arena);
    }
    ctx->out = caller;
    return status == CALM_OK ? calm_batch_norm(ctx, &head->norm, out) : status;
}
