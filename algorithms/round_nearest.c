/* Round to nearest: u = clip(round_half_even(w / s) + zero) on the grid of each group. */
#include "algorithms/part.h"

static calm_status nearest(calm_ctx *ctx, calm_problem *problem, const void *opts, calm_qjob *qjob)
{
    (void)opts;
    return calm_problem_nearest(ctx, problem, qjob);
}

const calm_part calm_round_nearest = {
    .name = "nearest",
    .revision = 1,
    .summary = "round to nearest, ties to even",
    .reference = "-",
    .kind = CALM_KIND_ROUND,
    .run.round = nearest,
};
