/* Run: a recipe from start to end - the one place that knows the order of stages.
 *
 *   open -> text -> per block: capture, quantize, score, keep -> choose -> guard -> assemble, export -> evaluate
 *
 * Nothing is printed: progress goes to `events`, notes and warnings to the context's log. */
#ifndef CALM_RUN_RUN_H
#define CALM_RUN_RUN_H

#include "ptq/base/event.h"
#include "ptq/cluster/cluster.h"
#include "ptq/run/result.h"

typedef struct calm_run calm_run;

typedef struct calm_run_options {
    const char *command;    /* as typed, for the store                       */
    calm_events events;
    calm_cluster *cluster;  /* ranks that divide the blocks; NULL: there is one.  All of them call the same with the
                             * same recipe; rank 0 has the result, the others return when it has ended. */
} calm_run_options;

/* Run a recipe, which must outlive the run.  *out is closed by the caller also after a failure, which is recorded in
 * the store as far as it got; it is NULL without memory.  Fails as its stages do; nothing half-written stays under the
 * output's name. */
calm_status calm_run_quantize(calm_ctx *ctx, const calm_recipe *recipe, const calm_run_options *options,
                              calm_run **out);

/* Close it, if there is one; *run is then NULL. */
void calm_run_close(calm_run **run);

/* What came of it; complete when the run did not fail. */
const calm_result *calm_run_result(const calm_run *run);

/* Put the failure of ctx as the run's end, keeping its message; the store may be what failed.  For what follows
 * a run. */
void calm_run_failed(calm_ctx *ctx, const calm_run *run);

#endif
