/* The check of adjoint.h. */
#include "tests/support/adjoint.h"

#include "ptq/base/rng.h"
#include "tests/support/harness.h"

#define RELATIVE 1e-7
#define ABSOLUTE 1e-9
#define STEP     6e-5

void adjoint_fill(double *x, size_t n, double spread, uint64_t stream)
{
    for (size_t i = 0; i < n; i++)
        x[i] = spread * calm_rng_normal(33, stream, i);
}

double *adjoint_filled(size_t n, double spread, uint64_t stream)
{
    double *x;
    ck_ok(CALM_NEW(ctx, ctx->out, x, n));
    adjoint_fill(x, n, spread, stream);
    return x;
}

double adjoint_dot(size_t n, const double *a, const double *b)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Returns <J u, v>, the slope of `value` at `x` along u. */
static double slope(adjoint_value_fn *value, void *state, double *x, const double *u, size_t n)
{
    static const double at[] = {-2, -1, 1, 2}, weight[] = {1.0 / 12, -8.0 / 12, 8.0 / 12, -1.0 / 12};
    double sum = 0, *kept;
    CALM_SCOPED_SCRATCH(ctx);
    ck_ok(CALM_NEW(ctx, ctx->scratch, kept, n));
    memcpy(kept, x, n * sizeof *kept);
    for (int i = 0; i < 4; i++) {
        for (size_t j = 0; j < n; j++)
            x[j] = kept[j] + at[i] * STEP * u[j];
        sum += weight[i] * value(state) / STEP;
    }
    memcpy(x, kept, n * sizeof *kept);
    return sum;
}

/* May a gradient be zero?  An encoder's bias of k moves all scores of a query alike, unless RoPE rotates k. */
static bool may_be_nothing(const char *name)
{
    return strstr(name, "key.bias") || strstr(name, "k_lin.bias") || strstr(name, "attn.k.bias");
}

void adjoint_check(const char *name, adjoint_value_fn *value, void *state, double *x, const double *gradient, size_t n)
{
    double *u;
    const double length = sqrt(adjoint_dot(n, gradient, gradient)), spread = sqrt(adjoint_dot(n, x, x) / (double)n);
    CALM_SCOPED_SCRATCH(ctx);
    ck_ok(CALM_NEW(ctx, ctx->scratch, u, n));
    ck_assert_msg(length > 1e-3 || may_be_nothing(name), "%s: the gradient is nearly nothing", name);
    for (int own = 0; own < (length > 0 ? 2 : 1); own++) {
        adjoint_fill(u, n, spread, 77);
        for (size_t i = 0; own && i < n; i++)
            u[i] = spread * sqrt((double)n) * gradient[i] / length;
        const double expected = adjoint_dot(n, gradient, u), found = slope(value, state, x, u, n);
        const double bound = RELATIVE * fmax(fabs(expected), spread * length) + ABSOLUTE;
        ck_assert_msg(fabs(found - expected) <= bound, "%s: <J u, v> = %.12g, <u, J^T v> = %.12g, bound %g", name,
                      found, expected, bound);
    }
}
