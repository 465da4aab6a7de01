/* Round to nearest: u = clip(round_half_even(w / s) + zero) on the grid of each group. */
#include "algorithms/part.h"

typedef struct nearest_job {
    const calm_target *target;
    calm_qjob *qjob;
} nearest_job;

/* Codes of the rows of a chunk, on the grids that stand in the job. */
static calm_status encode_chunk(calm_ctx *ctx, size_t chunk, void *user)
{
    const nearest_job *job = user;
    const calm_target *target = job->target;
    const calm_qjob *qjob = job->qjob;
    double *w;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, w, target->group));
    size_t end = (chunk + 1) * CALM_ROW_CHUNK < target->out ? (chunk + 1) * CALM_ROW_CHUNK : target->out;
    for (size_t cell = chunk * CALM_ROW_CHUNK * target->n_groups; cell < end * target->n_groups; cell++) {
        size_t g = cell % target->n_groups, n = calm_target_group_columns(target, g);
        size_t at = cell / target->n_groups * target->in + calm_target_group_start(target, g);
        calm_grid grid = {qjob->scales[cell], qjob->zeros ? qjob->zeros[cell] : calm_symmetric_zero(&qjob->scheme)};
        for (size_t j = 0; j < n; j++)
            w[j] = target->w[at + j];
        calm_grid_encode(&qjob->scheme, grid, w, n, qjob->codes + at);
    }
    return CALM_OK;
}

static calm_status nearest(calm_ctx *ctx, calm_target *target, const void *opts, calm_qjob *qjob)
{
    (void)opts;
    nearest_job job = {target, qjob};
    CALM_TRY(calm_target_grids(ctx, target, qjob));
    return calm_target_each_chunk(ctx, target, encode_chunk, &job);
}

const calm_part calm_round_nearest = {
    .name = "nearest",
    .revision = 1,
    .summary = "round to nearest, ties to even",
    .reference = "-",
    .kind = CALM_KIND_ROUND,
    .run.round = nearest,
};
