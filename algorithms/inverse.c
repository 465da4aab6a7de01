/* One matrix holds both triangles' worth of numbers: below the diagonal the inverse of H, which every order of the
 * columns reads again, and from the diagonal on the factor of the order that GPTQ goes by. */
#include "algorithms/inverse.h"

#include <assert.h>

#include "ptq/tensor/linalg.h"

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
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, (*out)->diag, n));
    return CALM_NEW(ctx, ctx->scratch, (*out)->left, n);
}

size_t calm_inverse_bytes(size_t in)
{
    return CALM_BYTES(calm_inverse, 1) + CALM_BYTES(double, in * in) + 2 * CALM_BYTES(double, in);
}

/* The inverse at this damping. */
static calm_status invert(calm_ctx *ctx, const calm_problem *problem, double damp)
{
    const size_t n = problem->in;
    calm_inverse *inverse = problem->inverse;
    double *u = inverse->u, mean = 0;
    for (size_t i = 0; i < n; i++)
        mean += problem->h_diag[i];
    mean /= (double)n;
    /* The upper triangle alone, which is what the factorisation reads. */
    for (size_t i = 0; i < n; i++) {
        for (size_t j = i; j < n; j++)
            u[i * n + j] = problem->h[i * n + j];
        u[i * n + i] += damp * mean;
    }
    inverse->damp = 0;
    CALM_TRY(calm_dcholesky_upper(ctx, n, u, n));
    CALM_TRY(calm_dcholesky_invert(ctx, n, u, n));
    for (size_t i = 0; i < n; i++) {
        inverse->diag[i] = u[i * n + i];
        inverse->left[i] = 1 / inverse->diag[i];
        for (size_t j = 0; j < i; j++)
            u[i * n + j] = u[j * n + i];
    }
    inverse->damp = damp;
    return CALM_OK;
}

/* Its factor in this order. */
static calm_status factor(calm_ctx *ctx, const calm_problem *problem, const size_t *order, double damp)
{
    const size_t n = problem->in;
    const calm_inverse *inverse = problem->inverse;
    double *u = inverse->u;
    if (inverse->damp != damp)
        CALM_TRY(invert(ctx, problem, damp));
    for (size_t i = 0; i < n; i++) {
        u[i * n + i] = inverse->diag[order[i]];
        for (size_t j = i + 1; j < n; j++) {
            const size_t low = calm_size_max(order[i], order[j]), high = calm_size_min(order[i], order[j]);
            u[i * n + j] = u[low * n + high];
        }
    }
    return calm_dcholesky_upper(ctx, n, u, n);
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
        if (factor(&trial, problem, order, damp) == CALM_OK)
            return CALM_OK;
    }
    return calm_fail(ctx, CALM_ENUMERIC, "%s: the Gram matrix is not positive definite at a damping of %g of its mean "
                                         "diagonal: %s", problem->job->name, *used, trial.message);
}
