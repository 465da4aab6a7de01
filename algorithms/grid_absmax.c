/* The plain grid: it spans the group (docs/method.md section 1).
 *
 *   symmetric   s = 2 max|w| / (2^b - 1)
 *   levels      s = max(max(w, 0) / largest level, min(w, 0) / least level)
 *   asymmetric  s = (max(w, 0) - min(w, 0)) / (2^b - 1), zero = round(-min(w, 0) / s) */
#include "algorithms/part.h"

static calm_status absmax(calm_ctx *ctx, const calm_group *group, const void *opts, calm_grid *out)
{
    (void)opts;
    double lo, hi;
    const calm_problem *problem = group->problem;
    calm_grid_span(&problem->job->scheme, group->w, group->n, &lo, &hi);
    return calm_group_finish(ctx, group, calm_grid_between(&problem->job->scheme, problem->global, lo, hi), out);
}

const calm_part calm_grid_absmax = {
    .name = "absmax",
    .revision = 1,
    .summary = "the grid spans the group",
    .reference = "-",
    .kind = CALM_KIND_GRID,
    .run.grid = absmax,
};
