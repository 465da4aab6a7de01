/* Forward pass over a batch of windows, block by block, in parallel over windows (and experts).
 *
 * The caller decides which weights each block has, so the same loop serves calibration, candidates under test and
 * evaluation. */
#pragma once

#include "ptq/layers/batch.h"
#include "ptq/model/head.h"
#include "ptq/model/model.h"

/* Opens a batch and fills it with embeddings.  Also fails as calm_model_embed, and then closes the batch. */
calm_status calm_batch_embed(calm_ctx *ctx, const calm_model *model, const calm_windows *windows, size_t first,
                             size_t n, calm_arena *arena, const char *spill_dir, calm_batch *out);

/* Runs one sublayer of a block over all windows in place; `observer` may be NULL. */
calm_status calm_batch_sublayer(calm_ctx *ctx, const calm_block *block, calm_sublayer sublayer, const calm_rope *rope,
                                calm_batch *batch, const calm_observer *observer);

/* Runs a block over all windows in place. */
calm_status calm_batch_block(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, calm_batch *batch,
                             const calm_observer *observer);

/* Returns its peak bytes of ctx->scratch, all workers together, for windows of the same length in memory;
 * `expert_bytes`: size of a loaded expert.  `prepared`: inputs of linears outside of the experts are scaled or
 * quantized. */
size_t calm_batch_block_scratch_bytes(const calm_config *config, size_t index, size_t n_windows, size_t longest,
                                      size_t expert_bytes, bool prepared, size_t n_threads);

/* Normalises the batch's hidden states in place; does nothing where the norm is absent (w NULL). */
calm_status calm_batch_norm(calm_ctx *ctx, const calm_norm *norm, calm_batch *batch);

/* Replaces weights of a float block, mostly by quantized ones, before it runs. */
typedef calm_status calm_override_fn(void *user, calm_ctx *ctx, size_t index, calm_block *block);

/* Loads one block into a temporary arena, lets `override` (NULL: none) change it, and runs it in place. */
calm_status calm_batch_load_block(calm_ctx *ctx, const calm_model *model, const calm_rope *rope, size_t index,
                                  calm_override_fn *override, void *user, calm_batch *batch);

/* Runs blocks `begin` to the last one in place, each as calm_batch_load_block, then applies the final norm. */
calm_status calm_batch_finish(calm_ctx *ctx, const calm_model *model, const calm_rope *rope, const calm_head *head,
                              size_t begin, calm_override_fn *override, void *user, calm_batch *batch);

/* Embeds windows first .. first + n - 1 into a batch in `arena`, and runs it through all blocks and the final norm. */
calm_status calm_batch_forward(calm_ctx *ctx, const calm_model *model, const calm_rope *rope, const calm_head *head,
                               const calm_windows *windows, size_t first, size_t n, calm_override_fn *override,
                               void *user, calm_arena *arena, calm_batch *out);
