/* A batch: the hidden states of some windows between one block and the next, in memory or in a file. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/data/windows.h"
#include "ptq/layers/block.h"
#include "ptq/layers/row_store.h"

typedef struct calm_batch {
    const calm_windows *windows;    /* borrowed */
    size_t first, n;                /* windows first .. first + n - 1                      */
    size_t rows, width;             /* number of all tokens; D + C                         */
    size_t carried;                 /* C: floats that a token carries besides its hidden row (calm_span); mostly 0 */
    calm_row_store hidden;          /* [rows, D + C], window after window; a window of T tokens holds its hidden states
                                       [T, D], then the carried floats [T, C] */
    calm_row_store shared;          /* [rows, D] common input of a block's sublayers (calm_span); width 0: none     */
    const char *spill_dir;          /* folder for further files where hidden is in a file  */
    struct calm_past *past;         /* of a single window: the state of earlier tokens (calm_span); or NULL */
} calm_batch;

/* Returns D + C. */
size_t calm_batch_width(const calm_config *config);

/* Drops the carried floats, so that hidden is [rows, D]; for use after the last block that reads them. */
calm_status calm_batch_drop_carried(calm_ctx *ctx, calm_batch *batch);

/* Return for window i (0 .. n - 1) of the batch its first row, its number of tokens, and its span. */
size_t calm_batch_row(const calm_batch *batch, size_t i);
size_t calm_batch_tokens(const calm_batch *batch, size_t i);
calm_span calm_batch_span(const calm_batch *batch, size_t i);

/* Returns how many windows fit into `most_bytes` of rows if all are as long as the longest; at least 1. */
size_t calm_batch_windows(const calm_windows *windows, size_t width, size_t most_bytes);

/* Returns the same from the number of windows and the length of the longest. */
size_t calm_batch_count(size_t n_windows, size_t longest, size_t width, size_t most_bytes);

/* Allocates uninitialised hidden states in `arena`, or with a spill_dir in a nameless file there.  Close with
 * calm_batch_close.  Fails as calm_row_store_open. */
calm_status calm_batch_open(calm_ctx *ctx, const calm_config *config, const calm_windows *windows, size_t first,
                            size_t n, calm_arena *arena, const char *spill_dir, calm_batch *out);

/* Closes a batch's files, if it has any. */
void calm_batch_close(calm_batch *batch);

/* Allocates batch->shared in families that need it (calm_arch.parallel), for a caller that runs sublayers one by one.
 * Fails as calm_row_store_open. */
calm_status calm_batch_new_shared(calm_ctx *ctx, const calm_config *config, calm_arena *arena, calm_batch *batch);

/* Returns the bytes that this allocates in memory for rows in memory. */
size_t calm_batch_share_bytes(const calm_config *config, size_t rows);

/* Gets window i: its span with `shared`, and its hidden states x, as calm_row_store_get.  calm_batch_put stores what a
 * sublayer changed. */
calm_status calm_batch_get(calm_ctx *ctx, const calm_batch *batch, size_t i, calm_span *span, float **x);
calm_status calm_batch_put(calm_ctx *ctx, const calm_batch *batch, size_t i, const calm_span *span, const float *x);

/* Gets the hidden row [D] of one token of the batch, read-only, as calm_row_store_get. */
calm_status calm_batch_get_row(calm_ctx *ctx, const calm_batch *batch, size_t row, float **x);

/* Returns the carried floats of a window whose rows x come from calm_batch_get; NULL: C is 0. */
float *calm_batch_carried(const calm_batch *batch, const calm_span *span, float *x);

/* Copies the first n windows of `from` into a new batch, allocated as by calm_batch_open.  Close it, also after a
 * failure. */
calm_status calm_batch_copy(calm_ctx *ctx, const calm_batch *from, size_t n, calm_arena *arena, const char *spill_dir,
                            calm_batch *out);

/* Copies the rows of the windows of `cut`, which are the first windows of `from` with fewer tokens (calm_windows_cut),
 * into a new batch in `arena`.  Close it, also after a failure. */
calm_status calm_batch_cut(calm_ctx *ctx, const calm_batch *from, const calm_windows *cut, calm_arena *arena,
                           calm_batch *out);

/* Copies the hidden states of the first to->n windows of `from` to `to`. */
calm_status calm_batch_assign(calm_ctx *ctx, const calm_batch *from, const calm_batch *to);
