/* A batch of windows: positions of its rows, opening and copying them. */
#include "ptq/layers/batch.h"

#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/base/threads.h"
#include "ptq/layers/past.h"

/* Rows of windows are stored one after the other, like their tokens. */
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
                       .ids = windows->ids + windows->begin[batch->first + i],
                       .positions = windows->positions ? windows->positions + windows->begin[batch->first + i] : NULL};
}

size_t calm_batch_width(const calm_config *config)
{
    return config->hidden + config->carried;
}

size_t calm_batch_count(size_t n_windows, size_t longest, size_t width, size_t most_bytes)
{
    /* All windows count as long as the longest, so that the result does not depend on their order. */
    size_t per_window = longest * width * sizeof(float);
    size_t n = per_window ? most_bytes / per_window : n_windows;
    return n < 1 ? 1 : n;
}

size_t calm_batch_windows(const calm_windows *windows, size_t width, size_t most_bytes)
{
    return calm_batch_count(windows->n, windows->longest, width, most_bytes);
}

calm_status calm_batch_open(calm_ctx *ctx, const calm_config *config, const calm_windows *windows, size_t first,
                            size_t n, calm_arena *arena, const char *spill_dir, calm_batch *out)
{
    *out = (calm_batch){.windows = windows, .first = first, .n = n, .carried = config->carried,
                        .width = calm_batch_width(config), .spill_dir = spill_dir};
    out->rows = windows->begin[first + n] - windows->begin[first];
    /* `shared` stays empty: only callers that run sublayers one by one need it (calm_batch_new_shared). */
    return calm_row_store_open(ctx, arena, out->rows, out->width, spill_dir, &out->hidden);
}

void calm_batch_close(calm_batch *batch)
{
    calm_row_store_close(&batch->hidden);
    if (batch->shared.width)
        calm_row_store_close(&batch->shared);
}

calm_status calm_batch_new_shared(calm_ctx *ctx, const calm_config *config, calm_arena *arena, calm_batch *batch)
{
    if (!config->arch->parallel)
        return CALM_OK;
    return calm_row_store_open(ctx, arena, batch->rows, config->hidden, batch->spill_dir, &batch->shared);
}

size_t calm_batch_share_bytes(const calm_config *config, size_t rows)
{
    return config->arch->parallel ? calm_row_store_bytes(rows, config->hidden) : 0;
}

/* Returns the first row of the window that contains `row`, by binary search, since an expert asks for each of its
 * tokens. */
static size_t window_row(const calm_batch *batch, size_t row)
{
    size_t i = 0;
    for (size_t n = batch->n; n > 1;) {
        const size_t half = n / 2;
        const bool behind = calm_batch_row(batch, i + half) <= row;
        i += behind ? half : 0;
        n = behind ? n - half : half;
    }
    return calm_batch_row(batch, i);
}

calm_status calm_batch_get_row(calm_ctx *ctx, const calm_batch *batch, size_t row, float **x)
{
    if (!batch->carried)
        return calm_row_store_get(ctx, &batch->hidden, row, 1, x);
    /* The carried floats follow the rows of each window. */
    const size_t begin = window_row(batch, row), hidden = batch->width - batch->carried;
    calm_row_store numbers = batch->hidden;
    /* A store with rows of one float reaches any position within a window. */
    numbers.width = 1;
    return calm_row_store_get(ctx, &numbers, begin * batch->width + (row - begin) * hidden, hidden, x);
}

float *calm_batch_carried(const calm_batch *batch, const calm_span *span, float *x)
{
    return batch->carried ? x + span->n_tokens * (batch->width - batch->carried) : NULL;
}

calm_status calm_batch_drop_carried(calm_ctx *ctx, calm_batch *batch)
{
    const size_t hidden = batch->width - batch->carried;
    calm_row_store narrow = batch->hidden;
    narrow.width = hidden;
    /* In place, window by window: a window's new rows end before the old ones of the next begin. */
    for (size_t i = 0; batch->carried && i < batch->n; i++) {
        const size_t row = calm_batch_row(batch, i), n = calm_batch_tokens(batch, i);
        float *x, *y;
        CALM_SCOPED_SCRATCH(ctx);
        CALM_TRY(calm_row_store_get(ctx, &batch->hidden, row, n, &x));
        CALM_TRY(calm_row_store_get(ctx, &narrow, row, n, &y));
        memmove(y, x, n * hidden * sizeof *x);
        CALM_TRY(calm_row_store_put(ctx, &narrow, row, n, y));
    }
    /* The memory after them stays unused. */
    batch->hidden = narrow;
    batch->width = hidden;
    batch->carried = 0;
    return CALM_OK;
}

calm_status calm_batch_get(calm_ctx *ctx, const calm_batch *batch, size_t i, calm_span *span, float **x)
{
    const size_t row = calm_batch_row(batch, i);
    *span = calm_batch_span(batch, i);
    if (batch->shared.width)
        CALM_TRY(calm_row_store_get(ctx, &batch->shared, row, span->n_tokens, &span->shared));
    CALM_TRY(calm_row_store_get(ctx, &batch->hidden, row, span->n_tokens, x));
    /* A past keeps the carried floats of all tokens, since new tokens read those of earlier ones. */
    span->carried = batch->past ? batch->past->carried : calm_batch_carried(batch, span, *x);
    span->past = batch->past;
    return CALM_OK;
}

calm_status calm_batch_put(calm_ctx *ctx, const calm_batch *batch, size_t i, const calm_span *span, const float *x)
{
    const size_t row = calm_batch_row(batch, i);
    if (batch->shared.width)
        CALM_TRY(calm_row_store_put(ctx, &batch->shared, row, span->n_tokens, span->shared));
    return calm_row_store_put(ctx, &batch->hidden, row, span->n_tokens, x);
}

calm_status calm_batch_copy(calm_ctx *ctx, const calm_batch *from, size_t n, calm_arena *arena, const char *spill_dir,
                            calm_batch *out)
{
    *out = *from;
    out->n = n;
    /* Windows are contiguous: the first n end with the last row of window n - 1. */
    out->rows = n ? calm_batch_row(from, n - 1) + calm_batch_tokens(from, n - 1) : 0;
    out->spill_dir = spill_dir;
    /* *out still has the file of `from`: closing the copy after a failure must not close that. */
    out->hidden = (calm_row_store){.file = -1};
    out->shared = (calm_row_store){.file = -1};
    CALM_TRY(calm_row_store_open(ctx, arena, out->rows, out->width, spill_dir, &out->hidden));
    return calm_batch_assign(ctx, from, out);
}

calm_status calm_batch_assign(calm_ctx *ctx, const calm_batch *from, const calm_batch *to)
{
    /* Window by window, since both may be files, and a copy of all rows would not fit into memory. */
    for (size_t i = 0; i < to->n; i++) {
        const size_t row = calm_batch_row(to, i), n = calm_batch_tokens(to, i);
        CALM_SCOPED_SCRATCH(ctx);
        float *x, *y;
        CALM_TRY(calm_row_store_get(ctx, &from->hidden, row, n, &x));
        CALM_TRY(calm_row_store_get(ctx, &to->hidden, row, n, &y));
        memcpy(y, x, n * to->width * sizeof *x);
        CALM_TRY(calm_row_store_put(ctx, &to->hidden, row, n, y));
    }
    return CALM_OK;
}

calm_status calm_batch_cut(calm_ctx *ctx, const calm_batch *from, const calm_windows *cut, calm_arena *arena,
                           calm_batch *out)
{
    const size_t carried = from->carried, hidden = from->width - carried;
    *out = (calm_batch){.windows = cut, .n = cut->n, .rows = cut->begin[cut->n], .width = from->width,
                        .carried = carried, .hidden = {.file = -1}};
    CALM_TRY(calm_row_store_open(ctx, arena, out->rows, out->width, NULL, &out->hidden));
    for (size_t i = 0; i < out->n; i++) {
        /* Windows of both have the same beginning, so the rows are the first ones. */
        const size_t n = calm_batch_tokens(out, i), all = calm_batch_tokens(from, i);
        CALM_SCOPED_SCRATCH(ctx);
        float *x, *y = out->hidden.data + calm_batch_row(out, i) * out->width;
        CALM_TRY(calm_row_store_get(ctx, &from->hidden, calm_batch_row(from, i), carried ? all : n, &x));
        memcpy(y, x, n * hidden * sizeof *x);
        /* A window's carried floats follow all its hidden rows, so they move where the window is shorter. */
        if (carried)
            memcpy(y + n * hidden, x + all * hidden, n * carried * sizeof *x);
    }
    return CALM_OK;
}
