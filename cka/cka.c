/* Linear CKA (Kornblith et al. 1905.00414) and its debiased form: the mathematics, without the sums over rows.
 *
 *   CKA = <K, L> / (|K| |L|),  K = Yc Yc^T,  L = Zc Zc^T,  columns centred
 *   h(K, L) = <K, L> - n/(n-2) sum_i K_ii L_ii + tr K tr L / ((n-1)(n-2)),  debiased CKA = h(K,L) / sqrt(h(K,K) h(L,L))
 *
 * Both are cosines, and L = s^2 K + D.  The loss is computed as sin^2 / (1 + cos), where sin^2 needs only the part of D
 * that is orthogonal to K, so that an error of 1e-8 of the output keeps as many digits as an error of 1. */
#include <math.h>

#include "cka/products.h"

/* An output counts as constant if its Gram matrix is at most this share of the float one (docs/method.md section 3). */
#define CONSTANT_RATIO 1e-12

double calm_angle_loss(double aa, double ab, double bb, double ax, double xx)
{
    double cosine = ab / (sqrt(aa) * sqrt(bb));
    /* Above 60 degrees 1 - cos loses no digits, and the other form would divide by 1 + cos, which tends to 0. */
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

/* Returns <L, L> for L = s^2 K + D. */
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
