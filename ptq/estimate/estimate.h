/* Estimate: memory and disk that a run takes, from the shapes of its model and its recipe.
 *
 * The peak of each stage follows from the model's shapes, the recipe and four knobs that change no result: whether
 * hidden rows are in a file, how many candidates and experts are in work at once, whether a sublayer's jobs are
 * captured together.  The cheapest combination within the limit is taken. */
#pragma once

#include "ptq/state/state.h"

/* ---- memory (memory_plan.c, memory_choose.c) ---- */

/* Choose the knobs that fit the recipe's `memory`, write them to the log, and set the knobs of the run and the limit of
 * all arenas.  Knobs of the recipe, if it has any, are taken as they are.  CALM_ENOMEM: none fit; the message names the
 * smallest limit that would do. */
calm_status calm_memory_plan_apply(calm_ctx *ctx, calm_run *run, calm_memory_plan *out);

/* The first knobs, in order of their cost in time, whose estimate is within `limit`; knobs of the recipe as they are.
 * CALM_ENOMEM as calm_memory_plan_apply. */
calm_status calm_memory_plan_choose(calm_ctx *ctx, const calm_run *run, size_t limit, calm_memory_plan *out);

/* ---- disk (forecast_store.c) ---- */

/* Bytes of the blob of an entry's candidate on a job, unless it fails or a starved expert has the fallback's. */
double calm_forecast_blob_bytes(const calm_run *p, size_t job, size_t entry);

/* Does the guard of a run continue next to its blocks?  Where it may, and its rows take less than the rejected
 * candidates that can go for them. */
bool calm_forecast_follows(const calm_run *p);

/* Bytes of blobs and of the guard's rows next to them: the most while the run continues, and at most when it has ended.
 * Of a uniform result that has to be computed again those of every job are another's than the hybrid's. */
void calm_forecast_store(const calm_run *p, double *running, double *kept);
