/* What the chain reads of H^-1: its upper factor in an order of the columns, and its diagonal. */
#include "algorithms/inverse.h"

#include <assert.h>

#include "ptq/base/scope.h"
#include "ptq/tensor/inverse_root.h"

/* 0.01 becomes 2.56 of the mean diagonal: beyond that the damping outweighs H. */
#define MAX_DOUBLINGS 8

calm_status calm_inverse_new(calm_ctx *ctx, const calm_problem *problem, calm_inverse **out)
{
    const size_t n = problem->in;
    size_t cells;
    if (!calm_size_mul(&cells, n, n))
        return calm_fail(ctx, CALM_ENOMEM, "%s: a %zu x %zu matrix does not fit", problem->job->name, n, n);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, *out, 1));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, (*out)->u, cells));
    return CALM_NEW(ctx, ctx->scratch, (*out)->left, n);
}

size_t calm_inverse_bytes(size_t in)
{
    return CALM_BYTES(calm_inverse, 1) + CALM_BYTES(double, in * in) + CALM_BYTES(double, in);
}

size_t calm_inverse_factor_scratch_bytes(size_t in)
{
    return calm_dinverse_root_scratch_bytes(in) + CALM_BYTES(double, in);
}

/* left [I] = 1 / [H^-1]_jj: column sums of u^2, by the order that u has. */
static calm_status keep_diagonal(calm_ctx *ctx, calm_inverse *inverse, const size_t *order, size_t n)
{
    double *sum;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, sum, n));
    for (size_t i = 0; i < n; i++)
        for (size_t j = i; j < n; j++)
            sum[j] += inverse->u[i * n + j] * inverse->u[i * n + j];
    for (size_t j = 0; j < n; j++)
        inverse->left[order[j]] = 1 / sum[j];
    return CALM_OK;
}

/* Row `row` of H from its diagonal on, in the order of the columns, into u [I]: of the problem's copy, or as that would
 * be made. */
static void copy_row(const calm_problem *problem, const size_t *order, size_t row, double *u)
{
    const size_t n = problem->in;
    const double *h = problem->h ? problem->h : problem->gram, rows = (double)problem->job->stats->rows;
    for (size_t j = row; j < n; j++) {
        const double value = h ? h[order[row] * n + order[j]] : row == j;
        u[j] = problem->h || !h ? value : value / rows;
    }
}

static calm_status factor(calm_ctx *ctx, const calm_problem *problem, const size_t *order, double damp)
{
    const size_t n = problem->in;
    calm_inverse *inverse = problem->inverse;
    double *u = inverse->u, mean = 0;
    for (size_t i = 0; i < n; i++)
        mean += problem->h_diag[i];
    mean /= (double)n;
    /* The upper triangle alone, which is what the factorisation reads. */
    for (size_t i = 0; i < n; i++) {
        copy_row(problem, order, i, u + i * n);
        u[i * n + i] += damp * mean;
    }
    CALM_TRY(calm_dinverse_root(ctx, n, u, n));
    if (inverse->damp != damp)    /* the diagonal is the same in every order */
        CALM_TRY(keep_diagonal(ctx, inverse, order, n));
    inverse->damp = damp;
    return CALM_OK;
}

calm_status calm_inverse_factor(calm_ctx *ctx, const calm_problem *problem, const size_t *order, double damp,
                                double *used)
{
    /* Failures of the attempts stay in a context of their own; the last one is quoted. */
    calm_ctx trial = *ctx;
    /* Parts that call this have CALM_NEEDS_INVERSE among their caps. */
    assert(problem->inverse);
    for (int doubling = 0; doubling <= MAX_DOUBLINGS; doubling++, damp *= 2) {
        calm_ctx_forgive(&trial);
        *used = damp;
        const calm_status status = factor(&trial, problem, order, damp);
        if (status == CALM_OK)
            return CALM_OK;
        if (status != CALM_ENUMERIC)    /* more damping does not help */
            return calm_fail(ctx, status, "%s", trial.message);
    }
    return calm_fail(ctx, CALM_ENUMERIC, "%s: the Gram matrix is not positive definite at a damping of %g of its mean "
                                         "diagonal: %s", problem->job->name, *used, trial.message);
}
