/* Importance of a model's inputs: sums of squares per input channel of every job over a text. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/data/windows.h"
#include "ptq/model/model.h"
#include "ptq/quant/job_importance.h"

/* Run the float model over `windows` and sum up, into ctx->out; no Gram matrix is made.  Windows are taken in batches
 * whose hidden rows fit 1 GiB, which depends on the windows and the model alone: neither threads nor memory change a
 * bit.  `dataset` names the text (borrowed); peaks [n_blocks], all 0 before, are of what attention puts into its cache
 * (NULL: not asked); `tick` (may be NULL) is called after each block.  CALM_EARG: an id or
 * position for which the model has no row. */
calm_status calm_importance_collect(calm_ctx *ctx, const calm_model *model, const calm_windows *windows,
                                    const char *dataset, calm_kv_peaks *peaks, calm_tick_fn *tick, void *tick_user,
                                    calm_importance *out);

/* What it leaves in ctx->out for this many windows, the longest of `longest` tokens; and the most it holds besides,
 * its workers together: a batch and a block.  Tokens of a mixture are taken to be spread evenly over the experts. */
size_t calm_importance_collect_bytes(const calm_model *model, size_t longest);
size_t calm_importance_collect_scratch_bytes(const calm_model *model, size_t n_windows, size_t longest,
                                             size_t n_threads);
