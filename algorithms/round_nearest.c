/* Round to nearest: u = clip(round_half_even(w / s) + zero) on the grid of each group. */
#include "algorithms/part.h"

static calm_status nearest(calm_ctx *ctx, calm_problem *problem, const void *opts, calm_qjob *qjob)
{
    (void)opts;
    return calm_problem_nearest(ctx, problem, qjob);
}

static calm_part_memory memory(const calm_job_shape *shape, const void *opts)
{
    (void)opts;
    return (calm_part_memory){.most = calm_problem_nearest_scratch_bytes(shape)};
}

const calm_part calm_round_nearest = {
    .name = "nearest",
    .revision = 1,
    .summary = "round to nearest, ties to even",
    .reference = "-",
    .kind = CALM_KIND_ROUND,
    .memory = memory,
    .run.round = nearest,
};
