/* H of a job, for one chain or for all of its chains.
 *
 *   H = X^T X / N
 *
 * If calibration saw no input (N = 0: an expert that no token reached), or only zeros, it does not say which inputs
 * matter; H is then the identity, and every algorithm becomes its unweighted form.
 *
 * For an MLP with 25,600 inner channels one such matrix has 5.2 GB, so chains that do not change H share it, damped, in
 * place of the Gram matrix. */
#include "algorithms/hessian.h"

#include <math.h>

#include "algorithms/inverse.h"
#include "ptq/base/scope.h"
#include "ptq/base/threads.h"

/* A pass over the rows of a Gram matrix. */
typedef struct rows_task {
    const char *name;
    size_t in, rows;
    bool blind;
    const double *gram;
    double *h;
} rows_task;

static calm_status check_rows(calm_ctx *ctx, size_t first, size_t n, void *user)
{
    const rows_task *task = user;
    for (size_t i = first * task->in; i < (first + n) * task->in; i++)
        if (!isfinite(task->gram[i]))
            return calm_fail(ctx, CALM_ENUMERIC, "%s: Gram matrix [%zu, %zu] is %g", task->name, i / task->in,
                             i % task->in, task->gram[i]);
    return CALM_OK;
}

static void divide_rows(size_t first, size_t n, void *user)
{
    const rows_task *task = user;
    for (size_t i = first; i < first + n; i++)
        for (size_t j = 0; j < task->in; j++)
            task->h[i * task->in + j] = task->blind ? i == j : task->gram[i * task->in + j] / (double)task->rows;
}

calm_status calm_hessian_check(calm_ctx *ctx, const char *name, size_t in, const calm_stats *stats, bool *blind)
{
    const double *gram = stats->gram;
    double trace = 0;
    CALM_TRY(calm_parallel_rows(ctx, in, check_rows, &(rows_task){.name = name, .in = in, .gram = gram}));
    for (size_t j = 0; j < in; j++) {
        if (gram[j * in + j] < 0)
            return calm_fail(ctx, CALM_ENUMERIC, "%s: Gram matrix [%zu, %zu] is %g, a sum of squares", name, j, j,
                             gram[j * in + j]);
        trace += gram[j * in + j];
    }
    /* Rows of zeros carry no information, like no rows. */
    *blind = stats->rows == 0 || trace == 0;
    return CALM_OK;
}

void calm_hessian_diagonal(size_t in, const calm_stats *stats, const calm_hessian *shared, bool blind,
                           double *diagonal)
{
    for (size_t j = 0; j < in; j++)
        diagonal[j] = shared ? shared->diagonal[j] : blind ? 1 : stats->gram[j * in + j] / (double)stats->rows;
}

void calm_hessian_divide(calm_ctx *ctx, size_t in, const double *gram, size_t rows, bool blind, double *h)
{
    calm_parallel_each_rows(ctx, in, divide_rows,
                            &(rows_task){.in = in, .rows = rows, .blind = blind, .gram = gram, .h = h});
}

void calm_hessian_damp(size_t in, const double *diagonal, double damp, double *h)
{
    double mean = 0;
    for (size_t j = 0; j < in; j++)
        mean += diagonal[j];
    /* Relative to the mean of the diagonal, so that the same damping suits inputs of any size.  Without damping, a mean
     * that overflows must not matter. */
    const double more = damp > 0 ? damp * (mean / (double)in) : 0;
    for (size_t j = 0; j < in; j++)
        h[j * in + j] = diagonal[j] + more;
}

calm_status calm_hessian_make(calm_ctx *ctx, const char *name, size_t in, const calm_stats *stats, double *gram,
                              double damp, calm_hessian *out)
{
    calm_hessian made = {.damp = damp};
    CALM_TRY(calm_hessian_check(ctx, name, in, stats, &made.blind));
    CALM_TRY(CALM_NEW(ctx, ctx->out, made.diagonal, in));
    calm_hessian_diagonal(in, stats, NULL, made.blind, made.diagonal);
    made.h = gram;
    calm_hessian_divide(ctx, in, gram, stats->rows, made.blind, made.h);
    calm_hessian_damp(in, made.diagonal, damp, made.h);
    *out = made;
    return CALM_OK;
}

size_t calm_hessian_bytes(size_t in)
{
    return CALM_BYTES(double, in);
}

calm_status calm_hessian_factor(calm_ctx *ctx, const char *name, size_t in, double damp, calm_hessian *hessian)
{
    const calm_job job = {.name = name};
    calm_problem problem = {.job = &job, .in = in, .h = hessian->h, .h_diag = hessian->diagonal, .shared = hessian};
    size_t *order;
    const double *u;
    double used;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_inverse_new(ctx, ctx->out, name, in, &problem.inverse));
    CALM_TRY(calm_inverse_order(ctx, in, hessian->diagonal, &order));
    /* The same function as in a chain, so that the factor has the same bytes. */
    const calm_status status = calm_inverse_factor(ctx, &problem, order, damp, &u, &used);
    if (status == CALM_OK)
        hessian->inverse = problem.inverse;
    if (status == CALM_ENUMERIC)
        calm_ctx_clear_failure(ctx);
    return status == CALM_ENUMERIC ? CALM_OK : status;
}
