/* Helpers that parts share: groups, grids of a whole job, damping, channel scales. */
#include <assert.h>
#include <math.h>

#include "algorithms/part.h"
#include "ptq/base/scope.h"

size_t calm_problem_group_start(const calm_problem *problem, size_t g)
{
    return g * problem->group;
}

size_t calm_problem_group_columns(const calm_problem *problem, size_t g)
{
    return calm_size_min(problem->in - g * problem->group, problem->group);
}

/* Returns the number of rows that share their scales. */
static size_t shape_rows(const calm_job_shape *shape)
{
    return calm_scheme_rows(&(calm_scheme){.family = shape->family});
}

size_t calm_shape_chunks(const calm_job_shape *shape)
{
    /* Blocks of rows end with their linear, and the shape does not say how many rows a linear has; so this is a bound.
     * */
    if (shape_rows(shape) > 1)
        return shape->out;
    return (shape->out + CALM_ROW_CHUNK - 1) / CALM_ROW_CHUNK;
}

size_t calm_shape_workers(const calm_job_shape *shape)
{
    return calm_size_min(shape->n_threads, calm_shape_chunks(shape));
}

/* Returns the number of groups of the first super-block of a row. */
static size_t shape_super(const calm_job_shape *shape)
{
    return calm_size_min(calm_scheme_family(&(calm_scheme){.family = shape->family})->super, shape->n_groups);
}

size_t calm_shape_together(const calm_job_shape *shape)
{
    return shape_rows(shape) > 1 ? calm_size_min(shape_rows(shape), shape->out) * shape->group
                                 : shape_super(shape) * shape->group;
}

size_t calm_problem_chunks(const calm_problem *problem)
{
    const calm_job *job = problem->job;
    const size_t rows = calm_scheme_rows(&job->scheme);
    size_t n = 0;
    if (rows == 1)    /* rows are independent, so chunks may cross linears */
        return (problem->out + CALM_ROW_CHUNK - 1) / CALM_ROW_CHUNK;
    for (size_t i = 0; i < job->n_linears; i++)
        n += calm_scheme_row_blocks(&job->scheme, job->linears[i].out);
    return n;
}

size_t calm_problem_chunk(const calm_problem *problem, size_t index, size_t *first)
{
    const calm_linear *linear = problem->job->linears;
    const size_t rows = calm_scheme_rows(&problem->job->scheme);
    assert(rows <= CALM_ROW_CHUNK && index < calm_problem_chunks(problem));
    *first = index * CALM_ROW_CHUNK;
    if (rows == 1)
        return calm_size_min(problem->out - *first, CALM_ROW_CHUNK);
    for (*first = 0; index >= calm_scheme_row_blocks(&problem->job->scheme, linear->out); linear++) {
        *first += linear->out;
        index -= calm_scheme_row_blocks(&problem->job->scheme, linear->out);
    }
    *first += index * rows;
    return calm_size_min(linear->out - index * rows, rows);
}

calm_status calm_problem_each_chunk(calm_ctx *ctx, const calm_problem *problem, calm_task_fn *fn, void *user)
{
    return calm_parallel_for(ctx, calm_problem_chunks(problem), fn, user);
}

/* Returns the linear of a row of the stacked job; *row becomes the row's number in it. */
static const calm_linear *linear_of(const calm_problem *problem, size_t *row)
{
    const calm_linear *linear = problem->job->linears;
    while (*row >= linear->out)
        *row -= linear++->out;
    return linear;
}

calm_status calm_group_finish(calm_ctx *ctx, const calm_group *group, calm_grid grid, calm_grid *out)
{
    *out = grid;
    if (isfinite(grid.scale) && isfinite(grid.min))
        return CALM_OK;
    size_t row = group->row;
    const calm_linear *linear = linear_of(group->problem, &row);
    const char *name = CALM_SCHEME_NAME(&group->problem->job->scheme);
    return calm_fail(ctx, CALM_ENUMERIC, "%s.weight: row %zu, group %zu: the scale is beyond what %s can store (%g)",
                     linear->name, row, group->index, name, calm_scale_most(&group->problem->job->scheme));
}

/* Does a group whose largest |weight| is `most` become 0 even with the least storable scale? */
static bool vanishes(const calm_problem *problem, float most)
{
    const calm_scheme *scheme = &problem->job->scheme;
    double level = (double)most / (double)calm_scale_round(scheme, problem->global, 0);
    calm_level_nearest(scheme, calm_symmetric_zero(scheme), &level, 1);
    return level == 0;
}

calm_status calm_problem_check_global(calm_ctx *ctx, const calm_problem *problem)
{
    size_t n = 0, n_lost = 0, row = 0, group = 0;
    float most = 0;
    for (size_t i = 0; problem->global > 0 && i < problem->out; i++)
        for (size_t g = 0; g < problem->n_groups; g++) {
            const float *w = problem->w + i * problem->in + calm_problem_group_start(problem, g);
            const size_t columns = calm_problem_group_columns(problem, g);
            float here = 0;
            for (size_t j = 0; j < columns; j++)
                here = fmaxf(here, fabsf(w[j]));
            /* Smaller weights become about 0 in every scheme, so they do not count. */
            n += (double)here > CALM_SCALE_MIN;
            n_lost += (double)here > CALM_SCALE_MIN && vanishes(problem, here);
            if (here > most) {
                most = here;
                row = i;
                group = g;
            }
        }
    if (n_lost <= n / 2)
        return CALM_OK;
    const calm_linear *linear = linear_of(problem, &row);
    const char *name = CALM_SCHEME_NAME(&problem->job->scheme);
    return calm_fail(ctx, CALM_ENUMERIC,
                     "%s.weight: row %zu, group %zu: next to its largest weight, %g, the scales of %zu of %zu groups "
                     "are below what %s can store", linear->name, row, group, (double)most, n_lost, n, name);
}

/* Calls the chain's grid for group g of `row`, whose weights are w [columns of g]. */
static calm_status grid_of_group(calm_ctx *ctx, const calm_problem *problem, size_t row, size_t g, const double *w,
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
    /* First each group alone; then the shared scale of the super-block from all of them. */
    for (size_t i = 0; i < n; i++)
        CALM_TRY(grid_of_group(ctx, problem, row, g + i, w + i * problem->group, &out[i]));
    if (calm_scheme_family(scheme)->super == 1)
        return CALM_OK;
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

calm_status calm_problem_block(calm_ctx *ctx, const calm_problem *problem, size_t first, size_t n, size_t g,
                               const double *w, calm_grid *out)
{
    const size_t start = calm_problem_group_start(problem, g), columns = calm_problem_group_columns(problem, g);
    const calm_inverse *inverse = problem->inverse;
    const double *left_of = inverse && inverse->damp > 0 ? inverse->left + start : NULL;
    double *h, *left;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, h, n * columns));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, left, n * columns));
    /* All rows read the same input. */
    for (size_t i = 0; i < n * columns; i++) {
        h[i] = problem->h_diag ? problem->h_diag[start + i % columns] : 0;
        left[i] = left_of ? left_of[i % columns] : 0;
    }
    const calm_group group = {.problem = problem, .row = first, .index = g, .w = w, .h = problem->h_diag ? h : NULL,
                              .left = left_of ? left : NULL, .n = n * columns};
    return problem->grid->run.grid(ctx, &group, problem->grid_opts, out);
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

/* Rows of a chunk whose grids are computed. */
typedef struct chunk_rows {
    const calm_problem *problem;
    size_t first, n;     /* rows first .. first + n - 1 of the problem */
    const float *w;      /* [n, I] their weights                       */
    calm_qjob *qjob;     /* stores them as rows at .. at + n - 1       */
    size_t at;
    bool encode;         /* compute the nearest codes, too             */
} chunk_rows;

/* Computes grids and codes of rows that share their scales. */
static calm_status grids_of_blocks(calm_ctx *ctx, const chunk_rows *rows)
{
    const calm_problem *problem = rows->problem;
    const size_t n = rows->n;
    double *w;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, w, n * problem->group));
    /* A grid part sees a block of rows as one long group. */
    for (size_t g = 0; g < problem->n_groups; g++) {
        const size_t start = calm_problem_group_start(problem, g), columns = calm_problem_group_columns(problem, g);
        calm_grid grid;
        for (size_t i = 0; i < n * columns; i++)
            w[i] = rows->w[i / columns * problem->in + start + i % columns];
        CALM_TRY(calm_problem_block(ctx, problem, rows->first, n, g, w, &grid));
        for (size_t r = 0; r < n; r++) {
            calm_qjob_set_grid(rows->qjob, rows->at + r, g, grid);
            if (rows->encode)
                calm_grid_encode(&rows->qjob->scheme, grid, w + r * columns, columns,
                                 rows->qjob->codes + (rows->at + r) * problem->in + start);
        }
    }
    return CALM_OK;
}

/* Computes grids and codes, super-block by super-block if rows have their own scales. */
static calm_status grids_of_rows(calm_ctx *ctx, const chunk_rows *rows)
{
    const calm_problem *problem = rows->problem;
    double *w;
    calm_grid grid[CALM_SUPER_MAX];
    if (calm_scheme_rows(&rows->qjob->scheme) > 1)
        return grids_of_blocks(ctx, rows);
    /* In double, because all parts compute grids and codes from widened weights. */
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, w, calm_problem_super(problem, 0) * problem->group));
    /* Rows are independent; the groups of a super-block are computed together. */
    for (size_t r = 0; r < rows->n; r++) {
        for (size_t g = 0, n; g < problem->n_groups; g += n) {
            const size_t start = calm_problem_group_start(problem, g), at = (rows->at + r) * problem->in + start;
            n = calm_problem_super(problem, g);
            const size_t columns = calm_size_min(n * problem->group, problem->in - start);
            for (size_t j = 0; j < columns; j++)
                w[j] = (double)rows->w[r * problem->in + start + j];
            CALM_TRY(calm_problem_run(ctx, problem, rows->first + r, g, n, w, grid));
            for (size_t i = 0; i < n; i++) {
                const size_t from = i * problem->group;
                calm_qjob_set_grid(rows->qjob, rows->at + r, g + i, grid[i]);
                if (rows->encode)
                    calm_grid_encode(&rows->qjob->scheme, grid[i], w + from, calm_problem_group_columns(problem, g + i),
                                     rows->qjob->codes + at + from);
            }
        }
    }
    return CALM_OK;
}

typedef struct grids_job {
    const calm_problem *problem;
    calm_qjob *qjob;
    bool encode;
} grids_job;

static calm_status grids_of_chunk(calm_ctx *ctx, size_t chunk, void *user)
{
    const grids_job *job = user;
    chunk_rows rows = {.problem = job->problem, .qjob = job->qjob, .encode = job->encode};
    rows.n = calm_problem_chunk(job->problem, chunk, &rows.first);
    rows.at = rows.first;
    rows.w = job->problem->w + rows.first * job->problem->in;
    return grids_of_rows(ctx, &rows);
}

calm_status calm_problem_chunk_nearest(calm_ctx *ctx, const calm_problem *problem, size_t chunk, const float *w,
                                       calm_qjob *qjob)
{
    chunk_rows rows = {.problem = problem, .w = w, .qjob = qjob, .encode = true};
    rows.n = calm_problem_chunk(problem, chunk, &rows.first);
    return grids_of_rows(ctx, &rows);
}

calm_status calm_problem_grids(calm_ctx *ctx, const calm_problem *problem, calm_qjob *qjob)
{
    grids_job job = {problem, qjob, false};
    return calm_problem_each_chunk(ctx, problem, grids_of_chunk, &job);
}

size_t calm_problem_nearest_scratch_bytes(const calm_job_shape *shape)
{
    /* calm_problem_block also copies h and left. */
    const size_t arrays = shape_rows(shape) > 1 ? 3 : 1;
    return calm_shape_workers(shape) * arrays * CALM_BYTES(double, calm_shape_together(shape));
}

calm_status calm_problem_nearest(calm_ctx *ctx, const calm_problem *problem, calm_qjob *qjob)
{
    grids_job job = {problem, qjob, true};
    return calm_problem_each_chunk(ctx, problem, grids_of_chunk, &job);
}

const double *calm_problem_damped(const calm_problem *problem, double damp)
{
    const size_t n = problem->in;
    /* Parts that call this have CALM_NEEDS_GRAM among their caps, and a chain that shares H reads it as it is. */
    assert(problem->h && (!problem->shared || damp == problem->shared->damp));
    /* A shared H is already damped so. */
    if (!problem->shared)
        calm_hessian_damp(n, problem->h_diag, damp, problem->h);
    return problem->h;
}

size_t calm_problem_scale_bytes(size_t in)
{
    return CALM_BYTES(float, in);
}

calm_status calm_problem_scale(calm_ctx *ctx, calm_problem *problem, const float *s)
{
    size_t n = problem->in;
    assert(!problem->shared);    /* a part that scales is among the chain's caps */
    /* The first transform that scales creates in_scale; a second one multiplies it. */
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
    /* x is divided by s, so H = E[x x^T] is divided by s_i s_j, and W x does not change. */
    for (size_t i = 0; problem->h && i < n; i++)
        for (size_t j = 0; j < n; j++)
            problem->h[i * n + j] /= (double)s[i] * s[j];
    for (size_t j = 0; problem->h && j < n; j++)
        problem->h_diag[j] /= (double)s[j] * s[j];
    if (problem->inverse)
        problem->inverse->damp = problem->inverse->asked = 0;
    return CALM_OK;
}
