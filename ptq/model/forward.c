/* Forward pass over a batch of windows. */
#include "ptq/model/forward.h"

#include "ptq/arch/arch.h"
#include "ptq/base/threads.h"
#include "ptq/layers/moe.h"

/* One pass of all windows through one sublayer or both. */
typedef struct sublayer_task {
    const calm_block *block;
    calm_sublayer first, end;    /* sublayers first .. end - 1, in order */
    const calm_rope *rope;
    calm_batch *batch;
    const calm_observer *observer;
} sublayer_task;

/* Runs one window through one sublayer or both; windows only share the weights. */
static calm_status run_window(calm_ctx *ctx, size_t i, void *user)
{
    const sublayer_task *task = user;
    /* Rows in memory are changed in place; of rows in a file this is a copy. */
    calm_span span;
    float *x;
    CALM_TRY(calm_batch_get(ctx, task->batch, i, &span, &x));
    /* With both sublayers in one call their common input need not be stored. */
    if (!span.shared && task->block->config->arch->parallel && task->end == task->first + CALM_N_SUBLAYERS)
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, span.shared, span.n_tokens * task->batch->width));
    for (calm_sublayer s = task->first; s < task->end; s++)
        CALM_TRY(calm_block_sublayer(ctx, task->block, s, task->rope, x, &span, task->observer));
    return calm_batch_put(ctx, task->batch, i, &span, x);
}

calm_status calm_batch_sublayer(calm_ctx *ctx, const calm_block *block, calm_sublayer sublayer, const calm_rope *rope,
                                calm_batch *batch, const calm_observer *observer)
{
    sublayer_task task = {block, sublayer, sublayer + 1, rope, batch, observer};
    /* A mixture runs over the batch, expert by expert: otherwise every window would load all experts. */
    if (sublayer == CALM_SUBLAYER_MLP && block->moe.router)
        return calm_moe_run(ctx, block, batch, observer);
    return calm_parallel_for(ctx, batch->n, run_window, &task);
}

calm_status calm_batch_block(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, calm_batch *batch,
                             const calm_observer *observer)
{
    sublayer_task task = {block, CALM_SUBLAYER_ATTENTION, CALM_N_SUBLAYERS, rope, batch, observer};
    /* Both sublayers run while the window's rows are in the cache; rows in a file are read and written once. */
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
    /* The sublayers run one after the other, and each releases its memory. */
    const calm_config *own = calm_config_at(config, index);
    const size_t attention = calm_block_sublayer_scratch_bytes(own, CALM_SUBLAYER_ATTENTION, longest, prepared);
    const size_t mlp = config->moe.sparse[index]
                           ? calm_moe_run_scratch_bytes(config, n_windows, longest, expert_bytes, n_threads)
                           : workers * calm_block_sublayer_scratch_bytes(own, CALM_SUBLAYER_MLP, longest, prepared);
    /* A worker holds the common input of the sublayers for its window. */
    const size_t shared = workers * calm_batch_share_bytes(config, longest);
    /* Threads without a window help with those of others. */
    const size_t helper = calm_block_sublayer_helper_bytes(own, CALM_SUBLAYER_ATTENTION, longest);
    return shared + calm_size_max(workers * attention + (n_threads - workers) * helper, mlp);
}

typedef struct norm_task {
    const calm_norm *norm;
    calm_batch *batch;
} norm_task;

/* Normalises the rows of one window in place. */
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
    if (norm->w)
        CALM_TRY(calm_parallel_for(ctx, batch->n, norm_window, &task));
    /* Later steps read one matrix of hidden states. */
    return calm_batch_drop_carried(ctx, batch);
}

calm_status calm_batch_load_block(calm_ctx *ctx, const calm_model *model, const calm_rope *rope, size_t index,
                                  calm_override_fn *override, void *user, calm_batch *batch)
{
    calm_block block;
    /* The weights are released when this function returns: memory holds one block at a time. */
    CALM_SCOPED_RESULTS(ctx);
    CALM_TRY(calm_model_load_block(ctx, model, index, &block));
    if (override)
        CALM_TRY(override(user, ctx, index, &block));
    return calm_batch_block(ctx, &block, rope, batch, NULL);
}

calm_status calm_batch_finish(calm_ctx *ctx, const calm_model *model, const calm_rope *rope, const calm_head *head,
                              size_t begin, calm_override_fn *override, void *user, calm_batch *batch)
{
    for (size_t i = begin; i < calm_model_config(model)->n_blocks; i++)
        CALM_TRY(calm_batch_load_block(ctx, model, rope, i, override, user, batch));
    return calm_batch_norm(ctx, &head->norm, batch);
}

calm_status calm_batch_forward(calm_ctx *ctx, const calm_model *model, const calm_rope *rope, const calm_head *head,
                               const calm_windows *windows, size_t first, size_t n, calm_override_fn *override,
                               void *user, calm_arena *arena, calm_batch *out)
{
    /* Without a spill_dir rows stay in memory, and the batch has no file to close after a failure. */
    CALM_TRY(calm_batch_embed(ctx, model, windows, first, n, arena, NULL, out));
    return calm_batch_finish(ctx, model, rope, head, 0, override, user, out);
}
