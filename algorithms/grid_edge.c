/* The affine grid of MLX (mx.quantize): like absmax, but the end of larger magnitude is exactly a level; absmax rounds
 * the zero, which shifts both ends by up to half a step.  Schemes without zero points get absmax's grid.
 *
 *   lo = min(w, 0), hi = max(w, 0), e = max(-lo, hi), k = round(e (2^b - 1) / (hi - lo))
 *   s = e / k, zero = k if -lo > hi else 2^b - 1 - k
 *
 * MLX's own range may exclude 0, which a zero point among the codes cannot express, so the two grids differ in groups
 * whose weights all have one sign. */
#include <math.h>

#include "algorithms/part.h"

static calm_grid between(const calm_scheme *scheme, float global, double lo, double hi)
{
    if (scheme->family || scheme->symmetric || !(hi > lo))
        return calm_grid_between(scheme, global, lo, hi);
    const int most = calm_code_max(scheme);
    const double end = -lo > hi ? -lo : hi, steps = rint(end * most / (hi - lo));
    const float scale = calm_scale_round(scheme, global, end / steps);
    return (calm_grid){.scale = scale, .zero = (uint8_t)(-lo > hi ? steps : most - steps)};
}

static calm_status edge(calm_ctx *ctx, const calm_group *group, const void *opts, calm_grid *out)
{
    double lo, hi;
    const calm_problem *problem = group->problem;
    (void)opts;
    calm_grid_span(&problem->job->scheme, group->w, group->n, &lo, &hi);
    return calm_group_finish(ctx, group, between(&problem->job->scheme, problem->global, lo, hi), out);
}

const calm_part calm_grid_edge = {
    .name = "edge",
    .revision = 1,
    .summary = "the grid spans the group, its larger end is a level",
    .reference = "mx.quantize of MLX",
    .kind = CALM_KIND_GRID,
    .run.grid = edge,
};
