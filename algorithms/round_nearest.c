/* Round to nearest: u = clip(round_half_even(w / s) + zero) on the grid of each group. */
#include "algorithms/part.h"

typedef struct nearest_job {
    const calm_target *target;
    calm_qjob *qjob;
} nearest_job;

static calm_status encode_chunk(calm_ctx *ctx, size_t chunk, void *user)
{
    const nearest_job *job = user;
    const calm_target *target = job->target;
    double *w;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, w, target->group));
    size_t end = (chunk + 1) * CALM_ROW_CHUNK < target->out ? (chunk + 1) * CALM_ROW_CHUNK : target->out;
    for (size_t row = chunk * CALM_ROW_CHUNK; row < end; row++) {
        for (size_t g = 0; g < target->n_groups; g++) {
            size_t at = row * target->in + calm_target_group_start(target, g);
            size_t n = calm_target_group_columns(target, g);
            calm_grid grid;
            for (size_t j = 0; j < n; j++)
                w[j] = target->w[at + j];
            CALM_TRY(calm_target_grid(ctx, target, row, g, w, &grid));
            calm_qjob_set_grid(job->qjob, row, g, grid);
            calm_grid_encode(&job->qjob->scheme, grid, w, n, job->qjob->codes + at);
        }
    }
    return CALM_OK;
}

static calm_status nearest(calm_ctx *ctx, calm_target *target, const void *opts, calm_qjob *qjob)
{
    (void)opts;
    nearest_job job = {target, qjob};
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
