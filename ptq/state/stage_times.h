/* Time of a run by stage, as people read it: one row per stage, and one per entry of the pool. */
#pragma once

#include "ptq/base/times.h"
#include "ptq/recipe/recipe.h"

struct calm_run;

typedef struct calm_stage_time {
    const char *name;    /* of calm_time_stage_name, or of the pool's entry */
    calm_time time;
} calm_stage_time;

/* Rows in the order of the stages, entries of the pool in place of CALM_TIME_ALGORITHMS, in ctx->out.  Candidates are
 * computed side by side, so that its time is divided as `pool_seconds` [n_pool], the seconds of the tasks of each
 * entry, or equally where these are all 0.  CALM_ENOMEM. */
calm_status calm_run_times_list(calm_ctx *ctx, const calm_times *times, const calm_recipe *recipe,
                                  const double *pool_seconds, calm_stage_time **out, size_t *n);

/* Put a forecast [n] into the store of a run that has ended, next to what its stages took; rows as of
 * calm_run_times_list for the run's pool.  Fails as the store does. */
calm_status calm_run_times_forecast(calm_ctx *ctx, const struct calm_run *run, const calm_stage_time *forecast,
                                    size_t n);
