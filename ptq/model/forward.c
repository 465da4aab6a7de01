/* Forward pass over a batch of windows. */
#include "ptq/model/forward.h"

#include "ptq/base/threads.h"

size_t calm_batch_row(const calm_batch *batch, size_t i)
{
    return batch->windows->begin[batch->first + i] - batch->windows->begin[batch->first];
}

size_t calm_batch_tokens(const calm_batch *batch, size_t i)
{
    return batch->windows->begin[batch->first + i + 1] - batch->windows->begin[batch->first + i];
}

calm_status calm_batch_embed(calm_ctx *ctx, const calm_model *model, const calm_windows *windows, size_t first,
                             size_t n, calm_arena *arena, calm_batch *out)
{
    size_t elements;
    *out = (calm_batch){.windows = windows, .first = first, .n = n, .width = calm_model_config(model)->hidden};
    out->rows = windows->begin[first + n] - windows->begin[first];
    if (!calm_size_mul(&elements, out->rows, out->width))
        return calm_fail(ctx, CALM_ENOMEM, "hidden rows: %zu x %zu overflows", out->rows, out->width);
    CALM_TRY(CALM_NEW_RAW(ctx, arena, out->hidden, elements));
    return calm_model_embed(ctx, model, windows->ids + windows->begin[first], out->rows, out->hidden);
}

typedef struct block_task {
    const calm_block *block;
    const calm_rope *rope;
    calm_batch *batch;
    const calm_observer *observer;
} block_task;

static calm_status run_window(calm_ctx *ctx, size_t i, void *user)
{
    const block_task *task = user;
    calm_observer observer = task->observer ? *task->observer : (calm_observer){0};
    observer.window = task->batch->first + i;
    return calm_block_run(ctx, task->block, task->rope,
                          task->batch->hidden + calm_batch_row(task->batch, i) * task->batch->width,
                          calm_batch_tokens(task->batch, i), &observer);
}

calm_status calm_batch_block(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, calm_batch *batch,
                             const calm_observer *observer)
{
    block_task task = {block, rope, batch, observer};
    return calm_parallel_for(ctx, batch->n, run_window, &task);
}

size_t calm_batch_windows(const calm_windows *windows, size_t width, size_t budget_bytes)
{
    size_t per_window = windows->longest * width * sizeof(float);
    size_t n = per_window ? budget_bytes / per_window : windows->n;
    return n < 1 ? 1 : n;
}

calm_status calm_batch_forward(calm_ctx *ctx, const calm_model *model, const calm_rope *rope, const calm_head *head,
                               const calm_windows *windows, size_t first, size_t n, calm_override_fn *override,
                               void *user, calm_arena *arena, calm_batch *out)
{
    CALM_TRY(calm_batch_embed(ctx, model, windows, first, n, arena, out));
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
    if (status == CALM_OK)
        calm_head_norm(head, out->hidden, out->rows);
    return status;
}
