/* Estimate: memory and disk of a run, from the shapes of its model and its recipe.
 *
 * The peak of each stage follows from the model's shapes, the recipe and knobs that change no result (calm_knobs):
 * whether hidden states are in a file, how many candidates and experts are computed at once, whether a sublayer's jobs
 * are captured together, ...  The cheapest combination within the limit is used. */
#pragma once

#include "ptq/state/state.h"

/* ---- memory (memory_plan.c, memory_choose.c) ---- */

/* Chooses the knobs that fit the recipe's `memory`, logs them, and sets the run's knobs and the limit of all arenas.
 * Knobs in the recipe are used as they are.  CALM_ENOMEM: none fit; the message has the smallest sufficient limit. */
calm_status calm_memory_plan_apply(calm_ctx *ctx, calm_run *run, calm_memory_plan *out);

/* Returns the first knobs, in order of their cost in time, whose estimate is within `limit`; knobs in the recipe are
 * used as they are.  CALM_ENOMEM: as calm_memory_plan_apply. */
calm_status calm_memory_plan_choose(calm_ctx *ctx, const calm_run *run, size_t limit, calm_memory_plan *out);

/* ---- disk (forecast_store.c) ---- */

/* Returns the bytes of the blob of an entry's candidate on a job; ignores failures and the fallback of experts. */
double calm_forecast_blob_bytes(const calm_run *p, size_t job, size_t entry);

/* Returns true if the guard runs together with the blocks: if it can, and if its hidden states take less disk than the
 * rejected candidates that can then be deleted. */
bool calm_forecast_follows(const calm_run *p);

/* Estimates the bytes of blobs and of the guard's hidden states next to them: *running, the peak during the run; *kept,
 * the most after its end.  A uniform result that must be computed again has other codes in every job than the
 * hybrid. */
void calm_forecast_store(const calm_run *p, double *running, double *kept);
