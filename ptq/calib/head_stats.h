/* Statistics of the head's input: the float model's rows after the final norm. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/data/windows.h"
#include "ptq/model/model.h"

/* The windows from this one on are read: as many of the last ones as have 16 D rows, of narrow models no fewer than
 * 16384, but never the first quarter, on which candidates and tables are measured (fewer than 4 windows: all). */
size_t calm_head_stats_first(const calm_windows *windows, size_t width);

/* Run the float model over those windows and sum up X^T X [D, D] of what its head multiplies, *gram in ctx->out;
 * *rows their number.  Neither threads nor memory change a bit.  CALM_EARG: an id or position for which the model has
 * no row. */
calm_status calm_head_stats_collect(calm_ctx *ctx, const calm_model *model, const calm_windows *windows, double **gram,
                                    size_t *rows);

/* What it leaves in ctx->out, and the most it holds besides, its workers together. */
size_t calm_head_stats_bytes(size_t width);
size_t calm_head_stats_scratch_bytes(const calm_model *model, size_t n_windows, size_t longest, size_t n_threads);
