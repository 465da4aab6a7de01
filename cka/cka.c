/* Linear CKA (Kornblith et al. 1905.00414) and its debiased form: the mathematics, without the sums over rows.
 *
 *   CKA = <K, L> / (|K| |L|),  K = Yc Yc^T,  L = Zc Zc^T,  columns centred
 *   h(K, L) = <K, L> - n/(n-2) sum_i K_ii L_ii + tr K tr L / ((n-1)(n-2)),  debiased CKA = h(K,L) / sqrt(h(K,K) h(L,L))
 *
 * Both are cosines, and L = s^2 K + D.  So the loss is taken as sin^2 / (1 + cos), where sin^2 needs only the part
 * of D that is orthogonal to K: an error of 1e-8 of the output is as well resolved as one of 1. */
#include <math.h>

#include "cka/products.h"
#include "ptq/tensor/linalg.h"

/* A Gram matrix this much smaller than the float one is that of a constant output (docs/method.md section 3). */
#define CONSTANT_RATIO 1e-12

double calm_angle_loss(double aa, double ab, double bb, double ax, double xx)
{
    double cosine = ab / (sqrt(aa) * sqrt(bb));
    /* Past 60 degrees 1 - cos does not cancel, and the other form would divide by 1 + cos -> 0. */
    if (cosine < 0.5)
        return 1 - fmax(cosine, -1);
    double orthogonal = fmax(0, xx - ax * (ax / aa));
    return orthogonal / bb / (1 + fmin(cosine, 1));
}

double calm_short_scale(double fit)
{
    int exponent;
    double mantissa = frexp(fit, &exponent);
    return ldexp(nearbyint(ldexp(mantissa, 11)), exponent - 11);
}

/* <L, L>, L = s^2 K + D. */
static double norm2_of_l(calm_products p, double s)
{
    double s2 = s * s;
    return s2 * (s2 * p.kk) + 2 * s2 * p.kd + p.dd;
}

bool calm_products_constant(calm_products p, double s)
{
    return p.kk > 0 && !(norm2_of_l(p, s) > CONSTANT_RATIO * CONSTANT_RATIO * p.kk);
}

double calm_cka_loss(calm_products p, double s)
{
    if (!(p.kk > 0))
        return p.dd > 0;
    if (calm_products_constant(p, s))
        return 1;
    return calm_angle_loss(p.kk, s * s * p.kk + p.kd, norm2_of_l(p, s), p.kd, p.dd);
}

static double debias(double product, const double *a, const double *b, size_t n)
{
    double m = (double)n, diagonal = 0, trace_a = 0, trace_b = 0;
    for (size_t i = 0; i < n; i++) {
        diagonal += a[i] * b[i];
        trace_a += a[i];
        trace_b += b[i];
    }
    return product - m / (m - 2) * diagonal + trace_a * (trace_b / ((m - 1) * (m - 2)));
}

calm_products calm_debias(calm_products p, const double *k, const double *d, size_t n)
{
    return (calm_products){debias(p.kk, k, k, n), debias(p.kd, k, d, n), debias(p.dd, d, d, n)};
}

/* ---- the general form ---- */

/* Xc [n, d] = X less its column means; row_norm2 [n] = |xc_t|^2. */
static calm_status centre(calm_ctx *ctx, const double *x, size_t n, size_t d, double *xc, double *row_norm2)
{
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < d; j++)
            if (!isfinite(x[i * d + j]))
                return calm_fail(ctx, CALM_ENUMERIC, "cka: the value at row %zu, column %zu is not finite", i, j);
    for (size_t j = 0; j < d; j++) {
        double sum = 0;
        for (size_t i = 0; i < n; i++)
            sum += x[i * d + j];
        for (size_t i = 0; i < n; i++)
            xc[i * d + j] = x[i * d + j] - sum / (double)n;
    }
    for (size_t i = 0; i < n; i++) {
        row_norm2[i] = 0;
        for (size_t j = 0; j < d; j++)
            row_norm2[i] += xc[i * d + j] * xc[i * d + j];
    }
    return CALM_OK;
}

/* |A^T B|_F^2 for A [n, da], B [n, db]. */
static calm_status cross_norm2(calm_ctx *ctx, const double *a, size_t da, const double *b, size_t db, size_t n,
                               double *out)
{
    double *c;
    size_t count;
    if (!calm_size_mul(&count, da, db))
        return calm_fail(ctx, CALM_ENOMEM, "cka: %zu x %zu values", da, db);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, c, count));
    calm_dgemm_tn(da, db, n, 1, a, da, b, db, 0, c, db);
    *out = 0;
    for (size_t i = 0; i < count; i++)
        *out += c[i] * c[i];
    return CALM_OK;
}

static double similarity(double xy, double xx, double yy)
{
    return xx > 0 && yy > 0 ? xy / (sqrt(xx) * sqrt(yy)) : 0;
}

static calm_status general(calm_ctx *ctx, const double *x, size_t d1, const double *y, size_t d2, size_t n,
                           double *cka, double *debiased)
{
    double *xc, *yc, *rx, *ry, xy, xx, yy;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, xc, n * d1));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, yc, n * d2));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, rx, n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, ry, n));
    CALM_TRY(centre(ctx, x, n, d1, xc, rx));
    CALM_TRY(centre(ctx, y, n, d2, yc, ry));
    CALM_TRY(cross_norm2(ctx, xc, d1, yc, d2, n, &xy));
    CALM_TRY(cross_norm2(ctx, xc, d1, xc, d1, n, &xx));
    CALM_TRY(cross_norm2(ctx, yc, d2, yc, d2, n, &yy));
    if (cka)
        *cka = similarity(xy, xx, yy);
    if (debiased)
        *debiased = similarity(debias(xy, rx, ry, n), debias(xx, rx, rx, n), debias(yy, ry, ry, n));
    return CALM_OK;
}

calm_status calm_cka_general(calm_ctx *ctx, const double *x, size_t d1, const double *y, size_t d2, size_t n,
                             double *cka, double *debiased)
{
    size_t least = debiased ? 4 : 2;
    if (n < least)
        return calm_fail(ctx, CALM_EARG, "cka: %zu rows, expected at least %zu", n, least);
    calm_arena_mark mark = calm_arena_save(ctx->scratch);
    calm_status status = general(ctx, x, d1, y, d2, n, cka, debiased);
    calm_arena_rewind(ctx->scratch, mark);
    return status;
}
