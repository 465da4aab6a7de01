/* Time of a run by stage, as reports show it: one row per stage, and one per pool entry. */
#pragma once

#include "ptq/base/times.h"
#include "ptq/recipe/recipe.h"

struct calm_run;

typedef struct calm_stage_time {
    const char *name;    /* name of the stage (calm_time_stage_name) or of the pool entry */
    calm_time time;
} calm_stage_time;

/* Lists the stages in order, with pool entries instead of CALM_TIME_ALGORITHMS, in ctx->out.  Candidates are computed
 * in parallel, so that the time of that stage is divided in proportion to pool_seconds [n_pool], the seconds of each
 * entry's tasks; equally if all are 0.  CALM_ENOMEM. */
calm_status calm_run_times_list(calm_ctx *ctx, const calm_times *times, const calm_recipe *recipe,
                                  const double *pool_seconds, calm_stage_time **out, size_t *n);

/* Stores a forecast [n] next to the measured stages of a finished run; rows as calm_run_times_list gives them for the
 * run's pool.  Fails as the store does. */
calm_status calm_run_times_forecast(calm_ctx *ctx, const struct calm_run *run, const calm_stage_time *forecast,
                                    size_t n);
