/* Forward pass over a batch of windows, block by block, in parallel over windows (and experts).
 *
 * The caller decides which weights each block has, so the same loop serves calibration, candidates under test and
 * evaluation. */
#pragma once

#include "ptq/model/batch.h"
#include "ptq/model/head.h"
#include "ptq/model/model.h"

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

/* Changes a float block before it runs: puts quantized weights in place of some. */
typedef calm_status calm_override_fn(void *user, calm_ctx *ctx, size_t index, calm_block *block);

/* Load one block into its own arena, let `override` (NULL: none) change it, and run it in place. */
calm_status calm_batch_load_block(calm_ctx *ctx, const calm_model *model, const calm_rope *rope, size_t index,
                                  calm_override_fn *override, void *user, calm_batch *batch);

/* Run blocks begin .. (each loaded, overridden by `override` unless NULL, run, released) in place and apply the final
 * norm. */
calm_status calm_batch_finish(calm_ctx *ctx, const calm_model *model, const calm_rope *rope, const calm_head *head,
                              size_t begin, calm_override_fn *override, void *user, calm_batch *batch);

/* Embed and run all blocks, as above.  Rows are in `arena`. */
calm_status calm_batch_forward(calm_ctx *ctx, const calm_model *model, const calm_rope *rope, const calm_head *head,
                               const calm_windows *windows, size_t first, size_t n, calm_override_fn *override,
                               void *user, calm_arena *arena, calm_batch *out);
