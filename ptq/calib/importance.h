/* Importance matrix of a model: sums of squares per input channel of every job over a text. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/data/windows.h"
#include "ptq/model/model.h"
#include "ptq/quant/job_importance.h"

/* Runs the float model over `windows` and sums the squares into ctx->out; no Gram matrix is computed.  Windows run in
 * batches whose hidden states fit 1 GiB, which depends only on windows and model: neither threads nor memory change a
 * bit.  dataset: name of the text (borrowed); peaks [n_blocks], initially 0: maxima of keys and values (NULL: not
 * computed); tick (NULL: none) is called after each block.  CALM_EARG: a token id or position that the model does not
 * have. */
calm_status calm_importance_collect(calm_ctx *ctx, const calm_model *model, const calm_windows *windows,
                                    const char *dataset, calm_kv_peaks *peaks, calm_tick_fn *tick, void *tick_user,
                                    calm_importance *out);

/* Return the bytes that this allocates in ctx->out, and the peak bytes besides, of all workers together: a batch and a
 * block.  longest: tokens of the longest window.  Tokens of a mixture are assumed to be routed evenly. */
size_t calm_importance_collect_bytes(const calm_model *model, size_t longest);
size_t calm_importance_collect_scratch_bytes(const calm_model *model, size_t n_windows, size_t longest,
                                             size_t n_threads);
