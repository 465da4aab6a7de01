/* Forward pass over a batch of windows, block by block, in parallel over windows (and experts).
 *
 * The batch holds the hidden rows of its windows; the caller decides which weights each block has, so the same loop
 * serves calibration, candidates under test and evaluation. */
#ifndef CALM_MODEL_FORWARD_H
#define CALM_MODEL_FORWARD_H

#include "ptq/base/context.h"
#include "ptq/io/windows.h"
#include "ptq/model/head.h"
#include "ptq/model/model.h"
#include "ptq/model/row_store.h"

typedef struct calm_batch {
    const calm_windows *windows;    /* borrowed */
    size_t first, n;                /* windows first .. first + n - 1                      */
    size_t rows, width;             /* all tokens of those windows; D                      */
    calm_row_store hidden;               /* [rows, D], window after window                      */
    const char *spill_dir;          /* where more rows may go when hidden is in a file     */
} calm_batch;

/* Rows of window i (0 .. n-1) of the batch: its first row, its number of tokens, and both with its positions. */
size_t calm_batch_row(const calm_batch *batch, size_t i);
size_t calm_batch_tokens(const calm_batch *batch, size_t i);
calm_span calm_batch_span(const calm_batch *batch, size_t i);

/* Allocate hidden rows in `arena` (or, unless spill_dir is NULL, in a file there) and fill them with embeddings; close
 * with calm_batch_close. */
calm_status calm_batch_embed(calm_ctx *ctx, const calm_model *model, const calm_windows *windows, size_t first,
                             size_t n, calm_arena *arena, const char *spill_dir, calm_batch *out);
void calm_batch_close(calm_batch *batch);

/* The first n windows of a batch with hidden rows of their own, in `arena` or a file as above; close too. */
calm_status calm_batch_copy(calm_ctx *ctx, const calm_batch *from, size_t n, calm_arena *arena, const char *spill_dir,
                            calm_batch *out);

/* Hidden rows of `to` = those of the first to->n windows of `from`. */
calm_status calm_batch_assign(calm_ctx *ctx, const calm_batch *from, const calm_batch *to);

/* Run one sublayer of a block over all windows in place; `observer` may be NULL. */
calm_status calm_batch_sublayer(calm_ctx *ctx, const calm_block *block, calm_sublayer sublayer, const calm_rope *rope,
                                calm_batch *batch, const calm_observer *observer);

/* Run a block over all windows in place. */
calm_status calm_batch_block(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, calm_batch *batch,
                             const calm_observer *observer);

/* The most that holds of ctx->scratch for windows of the same length in memory, its workers together;
 * `expert_bytes`: what the loader leaves of an expert.  `prepared`: inputs of linears outside the experts are scaled
 * or quantized. */
size_t calm_batch_block_scratch_bytes(const calm_config *config, size_t index, size_t n_windows, size_t longest,
                                      size_t expert_bytes, bool prepared, size_t n_threads);

/* The batch's hidden rows normalised in place; nothing to do for a norm that is not there. */
calm_status calm_batch_norm(calm_ctx *ctx, const calm_norm *norm, calm_batch *batch);

/* Windows of at most `most_bytes` of hidden rows, at least one; depends on the windows and D alone. */
size_t calm_batch_windows(const calm_windows *windows, size_t width, size_t most_bytes);

/* The same of windows known by their number and the longest of them alone. */
size_t calm_batch_count(size_t n_windows, size_t longest, size_t width, size_t most_bytes);

/* Changes a float block before it runs: puts quantized weights in place of some. */
typedef calm_status calm_override_fn(void *user, calm_ctx *ctx, size_t index, calm_block *block);

/* Embed, run all blocks (each loaded, overridden by `override` unless NULL, run, released) and apply the final norm.
 * Rows are in `arena`. */
calm_status calm_batch_forward(calm_ctx *ctx, const calm_model *model, const calm_rope *rope, const calm_head *head,
                               const calm_windows *windows, size_t first, size_t n, calm_override_fn *override,
                               void *user, calm_arena *arena, calm_batch *out);

#endif
