/* The closed-form fit of weights to another input, in double. */
#include "algorithms/input_fit.h"

#include <math.h>
#include <string.h>

#include "ptq/base/scope.h"
#include "ptq/tensor/linalg.h"

typedef struct fit_job {
    const calm_problem *problem;
    const char *part;
    const double *c;    /* [I, I] (Hq + l I)^-1 (Cq + l I) */
    double alpha;
} fit_job;

/* Computes c = (Hq + l I)^-1 (Cq + l I), l = shift. */
static calm_status solve(calm_ctx *ctx, const fit_job *job, const double *h, double shift, double *c)
{
    const size_t in = job->problem->in;
    double *u;
    /* The failure is reported below, with the name of the matrix. */
    calm_ctx trial = *ctx;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, u, in * in));
    memcpy(u, h, in * in * sizeof *u);
    for (size_t j = 0; j < in; j++) {
        u[j * in + j] += shift;
        c[j * in + j] += shift;
    }
    calm_status status = calm_dcholesky_upper(&trial, in, u, in);
    if (status == CALM_OK)
        status = calm_dcholesky_solve(&trial, in, u, in, in, c, in);
    return status == CALM_OK ? CALM_OK
                             : calm_fail(ctx, status, "%s: %s: E[xq xq^T] + %g I: %s", job->problem->job->name,
                                         job->part, shift, trial.message);
}

/* Task: replaces a chunk of rows of W by those of W + alpha (W c^T - W). */
static calm_status fit_chunk(calm_ctx *ctx, size_t index, void *user)
{
    const fit_job *job = user;
    const calm_problem *problem = job->problem;
    size_t in = problem->in, first, n = calm_problem_chunk(problem, index, &first), cells = n * in;
    float *w = problem->w + first * in;
    double *from, *to;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, from, cells));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, to, cells));
    for (size_t i = 0; i < cells; i++)
        from[i] = w[i];
    calm_dgemm_nt(n, in, in, 1, from, in, job->c, in, 0, to, in);
    for (size_t i = 0; i < cells; i++) {
        w[i] = (float)(job->alpha < 1 ? from[i] + job->alpha * (to[i] - from[i]) : to[i]);
        if (!isfinite(w[i]))
            return calm_fail(ctx, CALM_ENUMERIC, "%s: %s: the fitted weight [%zu, %zu] is %g", problem->job->name,
                             job->part, first + i / in, i % in, to[i]);
    }
    return CALM_OK;
}

calm_status calm_input_fit(calm_ctx *ctx, calm_problem *problem, const char *part, const double *h, double *c,
                           double lambda, double alpha)
{
    const size_t in = problem->in;
    fit_job job = {problem, part, c, alpha};
    double mean = 0;
    CALM_SCOPED_SCRATCH(ctx);
    for (size_t j = 0; j < in; j++)
        mean += h[j * in + j] / (double)in;
    if (mean == 0)
        return CALM_OK;    /* every row is zero, as without input: nothing to fit to */
    CALM_TRY(solve(ctx, &job, h, lambda * mean, c));
    return calm_problem_each_chunk(ctx, problem, fit_chunk, &job);
}

size_t calm_input_fit_scratch_bytes(const calm_job_shape *shape)
{
    const size_t in = shape->in;
    return CALM_BYTES(double, in * in) +
           calm_shape_workers(shape) * 2 * CALM_BYTES(double, calm_size_min(shape->out, CALM_ROW_CHUNK) * in);
}
