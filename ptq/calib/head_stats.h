/* Statistics of the head's input: the float model's rows after the final norm. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/data/windows.h"
#include "ptq/model/model.h"

/* Returns the first window that is read: the last windows with together 16 D rows, at least 16384 for narrow models,
 * are read, but never the first quarter, on which candidates and tables are measured (fewer than 4 windows: all are
 * read). */
size_t calm_head_stats_first(const calm_windows *windows, size_t width);

/* Runs the float model over those windows and sums X^T X [D, D] of the head's input into *gram (ctx->out); *rows:
 * number of rows.  Neither threads nor memory change a bit.  CALM_EARG: a token id or position that the model does not
 * have. */
calm_status calm_head_stats_collect(calm_ctx *ctx, const calm_model *model, const calm_windows *windows, double **gram,
                                    size_t *rows);

/* Return the bytes that this allocates in ctx->out, and the peak bytes besides, of all workers together. */
size_t calm_head_stats_bytes(size_t width);
size_t calm_head_stats_scratch_bytes(const calm_model *model, calm_operands operands, size_t n_windows, size_t longest,
                                     size_t n_threads);
