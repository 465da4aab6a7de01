/* Run: executes a recipe from start to end.  Only this folder has the order of the stages.
 *
 *   open -> text -> per block: capture, quantize, score, keep -> choose -> guard -> assemble, export -> evaluate
 *
 * calm prints nothing here: progress goes to `events`, notes and warnings to the context's log. */
#pragma once

#include "ptq/base/event.h"
#include "ptq/cluster/cluster.h"
#include "ptq/state/result.h"

typedef struct calm_run_options {
    const char *command;    /* the command line, for the store               */
    calm_events events;
    calm_cluster *cluster;  /* ranks that divide the blocks; NULL: one rank.  All ranks make the same call with the same
                             * recipe; rank 0 gets the result, the others return when rank 0 has ended. */
} calm_run_options;

/* Runs a recipe, which must outlive the run.  The caller closes *out, even after a failure; *out is NULL if there is no
 * memory for it.  The store records the failure if it is open by then.  Fails as its stages do; no incomplete file
 * stays under the output's name. */
calm_status calm_run_quantize(calm_ctx *ctx, const calm_recipe *recipe, const calm_run_options *options,
                              calm_run **out);

/* Does the same until all candidates are computed; then `stages` replaces choice, guard and export. */
typedef calm_status calm_stages_fn(calm_ctx *ctx, calm_run *run, void *user);
calm_status calm_run_stages(calm_ctx *ctx, const calm_recipe *recipe, const calm_run_options *options,
                            calm_stages_fn *stages, void *user, calm_run **out);

/* Opens a run without computing: its inputs, checks of what the exporters would refuse, the memory plan.  Writes
 * nothing.  The caller closes *out, even after a failure. */
calm_status calm_run_open(calm_ctx *ctx, const calm_recipe *recipe, calm_run **out);

/* Computes candidates of a stored run, whose codes were deleted, again by their keys [n]; recipe: the run's.
 * CALM_EMISMATCH: the recipe does not give a candidate with one of the keys. */
calm_status calm_run_recompute(calm_ctx *ctx, const calm_recipe *recipe, const calm_run_options *options,
                               int64_t run_id, const char *const *keys, size_t n);

/* Closes a run and sets *run to NULL; does nothing if *run is NULL. */
void calm_run_close(calm_run **run);

/* Returns the result of a run; it is complete if the run did not fail. */
const calm_result *calm_run_result(const calm_run *run);
