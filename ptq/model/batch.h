/* A batch: the hidden rows of some windows, in memory or in a file, between one block and the next. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/data/windows.h"
#include "ptq/model/model.h"
#include "ptq/model/row_store.h"

typedef struct calm_batch {
    const calm_windows *windows;    /* borrowed */
    size_t first, n;                /* windows first .. first + n - 1                      */
    size_t rows, width;             /* all tokens of those windows; D + C                  */
    size_t carried;                 /* C: what blocks hand on next to hidden rows (calm_span); mostly 0 */
    calm_row_store hidden;          /* [rows, D + C], window after window; of a window of T tokens first the hidden rows
                                       [T, D], then what is carried [T, C] */
    calm_row_store shared;          /* [rows, D] what both sublayers of a block read (calm_span); width 0: nothing  */
    const char *spill_dir;          /* where more rows may go when hidden is in a file     */
    struct calm_past *past;         /* of one window: what its tokens follow (calm_span); NULL: nothing */
} calm_batch;

/* D + C. */
size_t calm_batch_width(const calm_config *config);

/* Leave the hidden rows alone, [rows, D], after the last block that reads what is carried. */
calm_status calm_batch_drop_carried(calm_ctx *ctx, calm_batch *batch);

/* Window i (0 .. n-1) of the batch: its first row, its number of rows, and that number with their positions. */
size_t calm_batch_row(const calm_batch *batch, size_t i);
size_t calm_batch_tokens(const calm_batch *batch, size_t i);
calm_span calm_batch_span(const calm_batch *batch, size_t i);

/* How many windows have at most `most_bytes` of hidden rows if all are as long as the longest; at least 1. */
size_t calm_batch_windows(const calm_windows *windows, size_t width, size_t most_bytes);

/* The same of windows known by their number and the longest of them alone. */
size_t calm_batch_count(size_t n_windows, size_t longest, size_t width, size_t most_bytes);

/* Allocate hidden rows in `arena` (with a spill_dir: in a nameless file there), of unspecified value.  Close with
 * calm_batch_close.  Fails as calm_row_store_open. */
calm_status calm_batch_open(calm_ctx *ctx, const calm_model *model, const calm_windows *windows, size_t first,
                            size_t n, calm_arena *arena, const char *spill_dir, calm_batch *out);

/* The same, filled with embeddings.  Fails as calm_model_embed too, and closes the batch then. */
calm_status calm_batch_embed(calm_ctx *ctx, const calm_model *model, const calm_windows *windows, size_t first,
                             size_t n, calm_arena *arena, const char *spill_dir, calm_batch *out);
void calm_batch_close(calm_batch *batch);

/* Room for the rows that both sublayers of a block read, where the family has such: a caller that runs sublayers one by
 * one needs it.  Fails as calm_row_store_open. */
calm_status calm_batch_share(calm_ctx *ctx, const calm_config *config, calm_arena *arena, calm_batch *batch);

/* What that leaves in memory, of rows in memory. */
size_t calm_batch_share_bytes(const calm_config *config, size_t rows);

/* calm_batch_span with that room; *x the hidden rows of the window, as calm_row_store_get.  And back: what a sublayer
 * changed. */
calm_status calm_batch_get(calm_ctx *ctx, const calm_batch *batch, size_t i, calm_span *span, float **x);
calm_status calm_batch_put(calm_ctx *ctx, const calm_batch *batch, size_t i, const calm_span *span, const float *x);

/* The hidden row [D] of one token of the batch, to read, as calm_row_store_get. */
calm_status calm_batch_get_row(calm_ctx *ctx, const calm_batch *batch, size_t row, float **x);

/* What is carried, of a window whose rows x are as calm_batch_get gives them; NULL: nothing is. */
float *calm_batch_carried(const calm_batch *batch, const calm_span *span, float *x);

/* The first n windows of `from` with their own hidden rows, allocated as above.  Close too, also after a failure. */
calm_status calm_batch_copy(calm_ctx *ctx, const calm_batch *from, size_t n, calm_arena *arena, const char *spill_dir,
                            calm_batch *out);

/* The rows of `from` of the windows of `cut`, which are its first ones with fewer tokens (calm_windows_cut): in memory,
 * in `arena`.  Close too, also after a failure. */
calm_status calm_batch_cut(calm_ctx *ctx, const calm_batch *from, const calm_windows *cut, calm_arena *arena,
                           calm_batch *out);

/* Copy the hidden rows of the first to->n windows of `from` to `to`. */
calm_status calm_batch_assign(calm_ctx *ctx, const calm_batch *from, const calm_batch *to);
