/* Helpers that parts share: groups, grids of a whole job, damping, channel scales. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "algorithms/part.h"

size_t calm_problem_group_start(const calm_problem *problem, size_t g)
{
    return g * problem->group;
}

size_t calm_problem_group_columns(const calm_problem *problem, size_t g)
{
    size_t left = problem->in - g * problem->group;
    return left < problem->group ? left : problem->group;
}

size_t calm_shape_chunks(const calm_job_shape *shape)
{
    return (shape->out + CALM_ROW_CHUNK - 1) / CALM_ROW_CHUNK;
}

size_t calm_shape_workers(const calm_job_shape *shape)
{
    return calm_size_min(shape->n_threads, calm_shape_chunks(shape));
}

calm_status calm_problem_each_chunk(calm_ctx *ctx, const calm_problem *problem, calm_task_fn *fn, void *user)
{
    return calm_parallel_for(ctx, (problem->out + CALM_ROW_CHUNK - 1) / CALM_ROW_CHUNK, fn, user);
}

calm_status calm_group_finish(calm_ctx *ctx, const calm_group *group, calm_grid grid, calm_grid *out)
{
    *out = grid;
    if (isfinite(grid.scale))
        return CALM_OK;
    const calm_linear *linear = group->problem->job->linears;
    size_t row = group->row;
    while (row >= linear->out)
        row -= linear++->out;
    return calm_fail(ctx, CALM_ENUMERIC, "%s.weight: row %zu, group %zu: the scale is beyond %g", linear->name, row,
                     group->index, CALM_SCALE_MAX);
}

calm_status calm_problem_grid(calm_ctx *ctx, const calm_problem *problem, size_t row, size_t g, const double *w,
                              calm_grid *out)
{
    const double *h = problem->h_diag ? problem->h_diag + calm_problem_group_start(problem, g) : NULL;
    calm_group group = {problem, row, g, w, h, calm_problem_group_columns(problem, g)};
    return problem->grid->run.grid(ctx, &group, problem->grid_opts, out);
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
    const calm_problem *problem;
    calm_qjob *qjob;
} grids_job;

static calm_status grids_of_chunk(calm_ctx *ctx, size_t chunk, void *user)
{
    const grids_job *job = user;
    const calm_problem *problem = job->problem;
    double *w;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, w, problem->group));
    size_t end = (chunk + 1) * CALM_ROW_CHUNK < problem->out ? (chunk + 1) * CALM_ROW_CHUNK : problem->out;
    for (size_t row = chunk * CALM_ROW_CHUNK; row < end; row++) {
        for (size_t g = 0; g < problem->n_groups; g++) {
            const float *from = problem->w + row * problem->in + calm_problem_group_start(problem, g);
            size_t n = calm_problem_group_columns(problem, g);
            calm_grid grid;
            for (size_t j = 0; j < n; j++)
                w[j] = from[j];
            CALM_TRY(calm_problem_grid(ctx, problem, row, g, w, &grid));
            calm_qjob_set_grid(job->qjob, row, g, grid);
        }
    }
    return CALM_OK;
}

calm_status calm_problem_grids(calm_ctx *ctx, const calm_problem *problem, calm_qjob *qjob)
{
    grids_job job = {problem, qjob};
    return calm_problem_each_chunk(ctx, problem, grids_of_chunk, &job);
}

/* Codes of the rows of a chunk, on the grids that stand in the job. */
static calm_status encode_chunk(calm_ctx *ctx, size_t chunk, void *user)
{
    const grids_job *job = user;
    const calm_problem *problem = job->problem;
    const calm_qjob *qjob = job->qjob;
    double *w;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, w, problem->group));
    size_t end = (chunk + 1) * CALM_ROW_CHUNK < problem->out ? (chunk + 1) * CALM_ROW_CHUNK : problem->out;
    for (size_t cell = chunk * CALM_ROW_CHUNK * problem->n_groups; cell < end * problem->n_groups; cell++) {
        size_t g = cell % problem->n_groups, n = calm_problem_group_columns(problem, g);
        size_t at = cell / problem->n_groups * problem->in + calm_problem_group_start(problem, g);
        calm_grid grid = {qjob->scales[cell], qjob->zeros ? qjob->zeros[cell] : calm_symmetric_zero(&qjob->scheme)};
        for (size_t j = 0; j < n; j++)
            w[j] = problem->w[at + j];
        calm_grid_encode(&qjob->scheme, grid, w, n, qjob->codes + at);
    }
    return CALM_OK;
}

size_t calm_problem_nearest_scratch_bytes(const calm_job_shape *shape)
{
    return calm_shape_workers(shape) * CALM_BYTES(double, shape->group);
}

calm_status calm_problem_nearest(calm_ctx *ctx, const calm_problem *problem, calm_qjob *qjob)
{
    grids_job job = {problem, qjob};
    CALM_TRY(calm_problem_grids(ctx, problem, qjob));
    return calm_problem_each_chunk(ctx, problem, encode_chunk, &job);
}

size_t calm_problem_damped_bytes(size_t in)
{
    return CALM_BYTES(double, in * in);
}

calm_status calm_problem_damped(calm_ctx *ctx, const calm_problem *problem, double damp, double **out)
{
    size_t n = problem->in, cells;
    double mean = 0;
    assert(problem->h);
    if (!calm_size_mul(&cells, n, n))
        return calm_fail(ctx, CALM_ENOMEM, "%s: a %zu x %zu matrix does not fit", problem->job->name, n, n);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, *out, cells));
    memcpy(*out, problem->h, cells * sizeof **out);
    for (size_t j = 0; j < n; j++)
        mean += problem->h_diag[j];
    mean /= (double)n;
    for (size_t j = 0; j < n; j++)
        (*out)[j * n + j] += damp * mean;
    return CALM_OK;
}

size_t calm_problem_scale_bytes(size_t in)
{
    return CALM_BYTES(float, in);
}

calm_status calm_problem_scale(calm_ctx *ctx, calm_problem *problem, const float *s)
{
    size_t n = problem->in;
    if (!problem->in_scale) {
        CALM_TRY(CALM_NEW(ctx, ctx->scratch, problem->in_scale, n));
        for (size_t j = 0; j < n; j++)
            problem->in_scale[j] = 1;
    }
    for (size_t j = 0; j < n; j++)
        problem->in_scale[j] *= s[j];
    for (size_t i = 0; i < problem->out; i++)
        for (size_t j = 0; j < n; j++)
            problem->w[i * n + j] *= s[j];
    for (size_t i = 0; problem->h && i < n; i++)
        for (size_t j = 0; j < n; j++)
            problem->h[i * n + j] /= (double)s[i] * s[j];
    for (size_t j = 0; problem->h && j < n; j++)
        problem->h_diag[j] = problem->h[j * n + j];
    return CALM_OK;
}
