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
    return calm_size_min(problem->in - g * problem->group, problem->group);
}

size_t calm_shape_chunks(const calm_job_shape *shape)
{
    return (shape->out + CALM_ROW_CHUNK - 1) / CALM_ROW_CHUNK;
}

size_t calm_shape_workers(const calm_job_shape *shape)
{
    return calm_size_min(shape->n_threads, calm_shape_chunks(shape));
}

size_t calm_shape_super(const calm_job_shape *shape)
{
    return calm_size_min(calm_scheme_family(&(calm_scheme){.family = shape->family})->super, shape->n_groups);
}

calm_status calm_problem_each_chunk(calm_ctx *ctx, const calm_problem *problem, calm_task_fn *fn, void *user)
{
    return calm_parallel_for(ctx, (problem->out + CALM_ROW_CHUNK - 1) / CALM_ROW_CHUNK, fn, user);
}

calm_status calm_group_finish(calm_ctx *ctx, const calm_group *group, calm_grid grid, calm_grid *out)
{
    *out = grid;
    if (isfinite(grid.scale) && isfinite(grid.min))
        return CALM_OK;
    /* The row is one of the stacked job; the message names the linear it belongs to and its row there. */
    const calm_linear *linear = group->problem->job->linears;
    size_t row = group->row;
    while (row >= linear->out)
        row -= linear++->out;
    char name[CALM_SCHEME_NAME_MAX];
    calm_scheme_name(&group->problem->job->scheme, name);
    return calm_fail(ctx, CALM_ENUMERIC, "%s.weight: row %zu, group %zu: the scale is beyond what %s can store (%g)",
                     linear->name, row, group->index, name, calm_scale_most(&group->problem->job->scheme));
}

calm_status calm_problem_grid(calm_ctx *ctx, const calm_problem *problem, size_t row, size_t g, const double *w,
                              calm_grid *out)
{
    const size_t start = calm_problem_group_start(problem, g);
    const calm_inverse *inverse = problem->inverse;
    const calm_group group = {.problem = problem, .row = row, .index = g, .w = w,
                              .h = problem->h_diag ? problem->h_diag + start : NULL,
                              .left = inverse && inverse->damp > 0 ? inverse->left + start : NULL,
                              .n = calm_problem_group_columns(problem, g)};
    return problem->grid->run.grid(ctx, &group, problem->grid_opts, out);
}

size_t calm_problem_super(const calm_problem *problem, size_t g)
{
    const size_t super = calm_scheme_family(&problem->job->scheme)->super;
    return calm_size_min(super, problem->n_groups - g);
}

calm_status calm_problem_run(calm_ctx *ctx, const calm_problem *problem, size_t row, size_t g, size_t n,
                             const double *w, calm_grid *out)
{
    const calm_scheme *scheme = &problem->job->scheme;
    float scales[CALM_SUPER_MAX], mins[CALM_SUPER_MAX];
    assert(n <= CALM_SUPER_MAX);
    /* Each as if it were alone; what they share is found of all of them. */
    for (size_t i = 0; i < n; i++)
        CALM_TRY(calm_problem_grid(ctx, problem, row, g + i, w + i * problem->group, &out[i]));
    if (calm_scheme_family(scheme)->super == 1)
        return CALM_OK;    /* as each is by itself */
    for (size_t i = 0; i < n; i++) {
        scales[i] = out[i].scale;
        mins[i] = out[i].min;
    }
    calm_scales_round(scheme, problem->global, n, scales, calm_scheme_has_mins(scheme) ? mins : NULL);
    for (size_t i = 0; i < n; i++) {
        const calm_group group = {.problem = problem, .row = row, .index = g + i};
        const calm_grid rounded = {.scale = scales[i], .zero = out[i].zero, .min = mins[i]};
        CALM_TRY(calm_group_finish(ctx, &group, rounded, &out[i]));
    }
    return CALM_OK;
}

void calm_qjob_set_grid(calm_qjob *qjob, size_t row, size_t g, calm_grid grid)
{
    qjob->scales[row * qjob->n_groups + g] = grid.scale;
    if (qjob->mins)
        qjob->mins[row * qjob->n_groups + g] = grid.min;
    if (qjob->zeros)
        qjob->zeros[row * qjob->n_groups + g] = grid.zero;
    else
        /* A symmetric result has no zeros to store it in. */
        assert(grid.zero == calm_symmetric_zero(&qjob->scheme));
}

typedef struct grids_job {
    const calm_problem *problem;
    calm_qjob *qjob;
    bool encode;    /* the nearest codes too */
} grids_job;

/* Grids of the rows of a chunk, and with `encode` their nearest codes: super-block by super-block. */
static calm_status grids_of_chunk(calm_ctx *ctx, size_t chunk, void *user)
{
    const grids_job *job = user;
    const calm_problem *problem = job->problem;
    const size_t first = chunk * CALM_ROW_CHUNK, end = calm_size_min(first + CALM_ROW_CHUNK, problem->out);
    double *w;
    calm_grid grid[CALM_SUPER_MAX];
    /* In double: grids and codes of all parts are computed from the same widened weights. */
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, w, calm_problem_super(problem, 0) * problem->group));
    /* Rows are independent; what shares a super-block goes together. */
    for (size_t row = first; row < end; row++) {
        for (size_t g = 0, n; g < problem->n_groups; g += n) {
            const size_t start = calm_problem_group_start(problem, g), at = row * problem->in + start;
            n = calm_problem_super(problem, g);
            for (size_t j = 0; j < n * problem->group && start + j < problem->in; j++)
                w[j] = problem->w[at + j];
            CALM_TRY(calm_problem_run(ctx, problem, row, g, n, w, grid));
            for (size_t i = 0; i < n; i++) {
                const size_t from = i * problem->group;
                calm_qjob_set_grid(job->qjob, row, g + i, grid[i]);
                if (job->encode)
                    calm_grid_encode(&job->qjob->scheme, grid[i], w + from, calm_problem_group_columns(problem, g + i),
                                     job->qjob->codes + at + from);
            }
        }
    }
    return CALM_OK;
}

calm_status calm_problem_grids(calm_ctx *ctx, const calm_problem *problem, calm_qjob *qjob)
{
    grids_job job = {problem, qjob, false};
    return calm_problem_each_chunk(ctx, problem, grids_of_chunk, &job);
}

size_t calm_problem_nearest_scratch_bytes(const calm_job_shape *shape)
{
    return calm_shape_workers(shape) * CALM_BYTES(double, calm_shape_super(shape) * shape->group);
}

calm_status calm_problem_nearest(calm_ctx *ctx, const calm_problem *problem, calm_qjob *qjob)
{
    grids_job job = {problem, qjob, true};
    return calm_problem_each_chunk(ctx, problem, grids_of_chunk, &job);
}

size_t calm_problem_damped_bytes(size_t in)
{
    return CALM_BYTES(double, in * in);
}

calm_status calm_problem_damped(calm_ctx *ctx, const calm_problem *problem, double damp, double **out)
{
    size_t n = problem->in, cells;
    double mean = 0;
    /* Parts that call this have CALM_NEEDS_GRAM among their caps. */
    assert(problem->h);
    if (!calm_size_mul(&cells, n, n))
        return calm_fail(ctx, CALM_ENOMEM, "%s: a %zu x %zu matrix does not fit", problem->job->name, n, n);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, *out, cells));
    memcpy(*out, problem->h, cells * sizeof **out);
    for (size_t j = 0; j < n; j++)
        mean += problem->h_diag[j];
    /* Relative to the mean of the diagonal, so that the same damping suits inputs of any size. */
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
    /* The first transform that scales; a second one multiplies. */
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
    /* x is divided by s, so H = E[x x^T] is divided by s_i s_j; W x stays what it was. */
    for (size_t i = 0; problem->h && i < n; i++)
        for (size_t j = 0; j < n; j++)
            problem->h[i * n + j] /= (double)s[i] * s[j];
    for (size_t j = 0; problem->h && j < n; j++)
        problem->h_diag[j] = problem->h[j * n + j];
    if (problem->inverse)
        problem->inverse->damp = 0;
    return CALM_OK;
}
