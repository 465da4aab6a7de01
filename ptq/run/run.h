/* Run: a recipe from start to end, in the one place that knows the order of stages.
 *
 *   open -> text -> per block: capture, quantize, score, keep -> choose -> guard -> assemble, export -> evaluate
 *
 * Nothing is printed: progress goes to `events`, notes and warnings to the context's log. */
#pragma once

#include "ptq/base/event.h"
#include "ptq/cluster/cluster.h"
#include "ptq/state/result.h"

typedef struct calm_run_options {
    const char *command;    /* the command line, for the store               */
    calm_events events;
    calm_cluster *cluster;  /* ranks that divide the blocks; NULL: one rank.  All ranks make the same call with the
                             * same recipe; rank 0 gets the result, the others return when rank 0 has ended. */
} calm_run_options;

/* Run a recipe, which must outlive the run.  The caller closes *out, also after a failure; the store records the
 * failure if it is open by then; *out is NULL if there is no memory for it.  Fails as its stages do; no half-written
 * file stays under the output's name. */
calm_status calm_run_quantize(calm_ctx *ctx, const calm_recipe *recipe, const calm_run_options *options,
                              calm_run **out);

/* As calm_run_quantize, but when all candidates are computed, `stages` replaces choice, guard and export. */
typedef calm_status calm_stages_fn(calm_ctx *ctx, calm_run *run, void *user);
calm_status calm_run_stages(calm_ctx *ctx, const calm_recipe *recipe, const calm_run_options *options,
                            calm_stages_fn *stages, void *user, calm_run **out);

/* Begin a run without computing: open its inputs, check what the exporter would refuse, plan the memory.  Writes
 * nothing.  The caller closes *out, also after a failure. */
calm_status calm_run_open(calm_ctx *ctx, const calm_recipe *recipe, calm_run **out);

/* Compute candidates of a stored run again, by their keys [n], whose codes were dropped; `recipe` is the run's.
 * CALM_EMISMATCH: the recipe does not give one of the keys. */
calm_status calm_run_recompute(calm_ctx *ctx, const calm_recipe *recipe, const calm_run_options *options,
                               int64_t run_id, const char *const *keys, size_t n);

/* Close a run, if there is one; *run is then NULL. */
void calm_run_close(calm_run **run);

/* The result of a run; complete when it did not fail. */
const calm_result *calm_run_result(const calm_run *run);
