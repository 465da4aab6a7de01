/* Helpers that parts share: groups, grids of a whole job, damping, channel scales. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "algorithms/part.h"

size_t calm_target_group_start(const calm_target *target, size_t g)
{
    return g * target->group;
}

size_t calm_target_group_columns(const calm_target *target, size_t g)
{
    size_t left = target->in - g * target->group;
    return left < target->group ? left : target->group;
}

size_t calm_shape_chunks(const calm_job_shape *shape)
{
    return (shape->out + CALM_ROW_CHUNK - 1) / CALM_ROW_CHUNK;
}

size_t calm_shape_workers(const calm_job_shape *shape)
{
    return calm_size_min(shape->n_threads, calm_shape_chunks(shape));
}

calm_status calm_target_each_chunk(calm_ctx *ctx, const calm_target *target, calm_task_fn *fn, void *user)
{
    return calm_parallel_for(ctx, (target->out + CALM_ROW_CHUNK - 1) / CALM_ROW_CHUNK, fn, user);
}

calm_status calm_group_finish(calm_ctx *ctx, const calm_group *group, calm_grid grid, calm_grid *out)
{
    *out = grid;
    if (isfinite(grid.scale))
        return CALM_OK;
    const calm_linear *linear = group->target->job->linears;
    size_t row = group->row;
    while (row >= linear->out)
        row -= linear++->out;
    return calm_fail(ctx, CALM_ENUMERIC, "%s.weight: row %zu, group %zu: the scale is beyond %g", linear->name, row,
                     group->index, CALM_SCALE_MAX);
}

calm_status calm_target_grid(calm_ctx *ctx, const calm_target *target, size_t row, size_t g, const double *w,
                             calm_grid *out)
{
    const double *h = target->h_diag ? target->h_diag + calm_target_group_start(target, g) : NULL;
    calm_group group = {target, row, g, w, h, calm_target_group_columns(target, g)};
    return target->grid->run.grid(ctx, &group, target->grid_opts, out);
}

void calm_qjob_set_grid(calm_qjob *qjob, size_t row, size_t g, calm_grid grid)
{
    qjob->scales[row * qjob->n_groups + g] = grid.scale;
    if (qjob->zeros)
        qjob->zeros[row * qjob->n_groups + g] = grid.zero;
    else
        assert(grid.zero == calm_symmetric_zero(&qjob->scheme));
}

typedef struct grids_job {
    const calm_target *target;
    calm_qjob *qjob;
} grids_job;

static calm_status grids_of_chunk(calm_ctx *ctx, size_t chunk, void *user)
{
    const grids_job *job = user;
    const calm_target *target = job->target;
    double *w;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, w, target->group));
    size_t end = (chunk + 1) * CALM_ROW_CHUNK < target->out ? (chunk + 1) * CALM_ROW_CHUNK : target->out;
    for (size_t row = chunk * CALM_ROW_CHUNK; row < end; row++) {
        for (size_t g = 0; g < target->n_groups; g++) {
            const float *from = target->w + row * target->in + calm_target_group_start(target, g);
            size_t n = calm_target_group_columns(target, g);
            calm_grid grid;
            for (size_t j = 0; j < n; j++)
                w[j] = from[j];
            CALM_TRY(calm_target_grid(ctx, target, row, g, w, &grid));
            calm_qjob_set_grid(job->qjob, row, g, grid);
        }
    }
    return CALM_OK;
}

calm_status calm_target_grids(calm_ctx *ctx, const calm_target *target, calm_qjob *qjob)
{
    grids_job job = {target, qjob};
    return calm_target_each_chunk(ctx, target, grids_of_chunk, &job);
}

/* Codes of the rows of a chunk, on the grids that stand in the job. */
static calm_status encode_chunk(calm_ctx *ctx, size_t chunk, void *user)
{
    const grids_job *job = user;
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

size_t calm_target_nearest_scratch_bytes(const calm_job_shape *shape)
{
    return calm_shape_workers(shape) * CALM_BYTES(double, shape->group);
}

calm_status calm_target_nearest(calm_ctx *ctx, const calm_target *target, calm_qjob *qjob)
{
    grids_job job = {target, qjob};
    CALM_TRY(calm_target_grids(ctx, target, qjob));
    return calm_target_each_chunk(ctx, target, encode_chunk, &job);
}

size_t calm_target_damped_bytes(size_t in)
{
    return CALM_BYTES(double, in * in);
}

calm_status calm_target_damped(calm_ctx *ctx, const calm_target *target, double damp, double **out)
{
    size_t n = target->in, cells;
    double mean = 0;
    assert(target->h);
    if (!calm_size_mul(&cells, n, n))
        return calm_fail(ctx, CALM_ENOMEM, "%s: a %zu x %zu matrix does not fit", target->job->name, n, n);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, *out, cells));
    memcpy(*out, target->h, cells * sizeof **out);
    for (size_t j = 0; j < n; j++)
        mean += target->h_diag[j];
    mean /= (double)n;
    for (size_t j = 0; j < n; j++)
        (*out)[j * n + j] += damp * mean;
    return CALM_OK;
}

size_t calm_target_scale_bytes(size_t in)
{
    return CALM_BYTES(float, in);
}

calm_status calm_target_scale(calm_ctx *ctx, calm_target *target, const float *s)
{
    size_t n = target->in;
    if (!target->in_scale) {
        CALM_TRY(CALM_NEW(ctx, ctx->scratch, target->in_scale, n));
        for (size_t j = 0; j < n; j++)
            target->in_scale[j] = 1;
    }
    for (size_t j = 0; j < n; j++)
        target->in_scale[j] *= s[j];
    for (size_t i = 0; i < target->out; i++)
        for (size_t j = 0; j < n; j++)
            target->w[i * n + j] *= s[j];
    for (size_t i = 0; target->h && i < n; i++)
        for (size_t j = 0; j < n; j++)
            target->h[i * n + j] /= (double)s[i] * s[j];
    for (size_t j = 0; target->h && j < n; j++)
        target->h_diag[j] = target->h[j * n + j];
    return CALM_OK;
}
