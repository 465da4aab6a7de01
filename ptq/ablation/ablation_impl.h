/* Parts that files of an ablation share.  Only files of this folder and their tests include it. */
#pragma once

#include "ptq/ablation/ablation.h"
#include "ptq/state/state.h"

/* Draws the choice of one random row, in ctx->out [n_jobs]: in each job one of its entries that did not fail, by the
 * counter-based generator; jobs outside the run stay float.  CALM_ENUMERIC: a job without such an entry. */
calm_status calm_ablation_draw(calm_ctx *ctx, const calm_run *p, long long seed, size_t **choice);

/* ---- notes (ablation_notes.c) ---- */

/* Computes rank correlations of every score with probe_kl, hook points and dropped rows, as arrays in `keep`. */
calm_status calm_ablation_notes(calm_ctx *ctx, const calm_run *p, calm_arena *keep, calm_ablation *out);

/* Computes mean and standard deviation of the rows of kind seed, by name, into out->noise in `keep`. */
calm_status calm_ablation_seeds(calm_ctx *ctx, calm_arena *keep, calm_ablation *out);
