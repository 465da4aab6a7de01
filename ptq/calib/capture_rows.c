/* Statistics of rows, window by window: accumulators per window, merged; and rows outside the blocks. */
#include "ptq/base/threads.h"
#include "ptq/calib/capture.h"

/* ---- rows of whole windows ---- */

size_t calm_actstat_new_bytes(size_t tokens)
{
    return CALM_BYTES(calm_actstat_acc, 1) + calm_actstat_init_bytes(tokens);
}

calm_status calm_actstat_new(calm_ctx *ctx, calm_arena *arena, size_t width, size_t tokens, calm_actstat_acc **out)
{
    CALM_TRY(CALM_NEW(ctx, arena, *out, 1));
    return calm_actstat_init(ctx, arena, width, tokens, *out);
}

size_t calm_actstat_parts_bytes(size_t n_windows, size_t tokens)
{
    return CALM_BYTES(calm_actstat_acc *, n_windows) + n_windows * calm_actstat_new_bytes(tokens);
}

calm_status calm_actstat_parts_new(calm_ctx *ctx, calm_arena *arena, const calm_batch *batch, size_t width,
                                   calm_actstat_acc ***out)
{
    CALM_TRY(CALM_NEW(ctx, arena, *out, batch->n));
    for (size_t i = 0; i < batch->n; i++)
        CALM_TRY(calm_actstat_new(ctx, arena, width, calm_batch_tokens(batch, i), &(*out)[i]));
    return CALM_OK;
}

calm_status calm_actstat_parts_merge(calm_ctx *ctx, const calm_batch *batch, calm_actstat_acc *const *parts,
                                     calm_actstat_acc **out, calm_actstat_acc ***of_text)
{
    CALM_TRY(calm_actstat_new(ctx, ctx->out, (*parts)->channels, batch->rows, out));
    CALM_TRY(calm_actstat_texts_new(ctx, ctx->out, batch, (*parts)->channels, of_text));
    for (size_t i = 0; i < batch->n; i++) {
        CALM_TRY(calm_actstat_merge(ctx, *out, parts[i]));
        CALM_TRY(calm_actstat_texts_add(ctx, batch, i, parts[i], *of_text));
    }
    return CALM_OK;
}

/* ---- each text of several ---- */

calm_status calm_actstat_texts_new(calm_ctx *ctx, calm_arena *arena, const calm_batch *batch, size_t width,
                                   calm_actstat_acc ***out)
{
    const calm_windows *windows = batch->windows;
    *out = NULL;
    if (windows->n_texts < 2)
        return CALM_OK;
    CALM_TRY(CALM_NEW(ctx, arena, *out, windows->n_texts));
    for (size_t t = 0; t < windows->n_texts; t++)
        CALM_TRY(calm_actstat_new(ctx, arena, width, calm_windows_text_tokens(windows, t), &(*out)[t]));
    return CALM_OK;
}

size_t calm_actstat_texts_bytes(size_t n_texts, size_t rows)
{
    /* Each text's arrays are rounded up to the arena's alignment, by less than one row. */
    return n_texts < 2 ? 0 : CALM_BYTES(calm_actstat_acc *, n_texts) + n_texts * calm_actstat_new_bytes(1) +
                                 calm_actstat_init_bytes(rows);
}

calm_status calm_actstat_texts_add(calm_ctx *ctx, const calm_batch *batch, size_t i, const calm_actstat_acc *part,
                                   calm_actstat_acc *const *of_text)
{
    return of_text ? calm_actstat_merge(ctx, of_text[batch->windows->text[batch->first + i]], part) : CALM_OK;
}

/* ---- rows outside the blocks ---- */

typedef struct rows_task {
    const calm_batch *batch;
    calm_actstat_acc **parts;    /* [n] */
} rows_task;

/* Task: adds the hidden states of one window. */
static calm_status add_rows(calm_ctx *ctx, size_t i, void *user)
{
    const rows_task *task = user;
    const size_t n = calm_batch_tokens(task->batch, i);
    float *x;
    CALM_TRY(calm_row_store_get(ctx, &task->batch->hidden, calm_batch_row(task->batch, i), n, &x));
    return calm_actstat_add(ctx, task->parts[i], x, n, (uint32_t)(task->batch->first + i), 0);
}

size_t calm_capture_rows_scratch_bytes(size_t n_windows, size_t longest)
{
    return calm_actstat_parts_bytes(n_windows, longest);
}

calm_status calm_capture_rows(calm_ctx *ctx, const calm_batch *batch, calm_actstat_acc **out,
                              calm_actstat_acc ***of_text)
{
    rows_task task = {.batch = batch};
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_actstat_parts_new(ctx, ctx->scratch, batch, batch->width - batch->carried, &task.parts));
    CALM_TRY(calm_parallel_for(ctx, batch->n, add_rows, &task));
    return calm_actstat_parts_merge(ctx, batch, task.parts, out, of_text);
}
