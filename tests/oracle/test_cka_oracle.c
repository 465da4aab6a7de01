/* All metrics of calm_score() against their definitions: n x n Gram matrices of centred rows and plain loops, in long
 * double.
 *
 * The oracle computes 1 - CKA directly, which has an absolute error: sums over n^2 terms are compensated, so that it is
 * a few units of 2^-64 and not n of them.
 *
 * The error of calm's value, for sums in any order: calm writes Z = s Y + E, F = s Y + E/2, D = E F^T + F E^T and
 * L = s^2 K + D, and computes <K, K>, <K, D> and <D, D> in double.  A sum of N products is within g = N 2^-53 of the
 * product of its factors' norms (Higham, Accuracy and Stability, 3.5).  With Q = |Y - centre|^2 >= |K| and
 * P = 2 |E| |F| >= |D|:
 *
 *   <K, K> is within 2 g Q^2, <K, D> within 2 g Q P, <D, D> within 3 g P^2, each for an element and its sum;
 *   sin^2 = (<D, D> - <K, D>^2 / <K, K>) / <L, L>: its numerator is within 9 g P^2 (Q / |K|)^4, <L, L> within
 *   3 g (s^2 Q + P)^2;
 *   cos = (s^2 <K, K> + <K, D>) / (|K| |L|) is within 4 g (s^2 Q + P)^2 / |L|^2 (Q / |K|)^2, and then 1 - cos > 1/2.
 *
 * So 1 - CKA is within 9 g (Q / |K|)^4 (P^2 + |1 - CKA| (s^2 Q + P)^2) / |L|^2.  Debiasing replaces the squares by
 * h(K, K) and h(L, L), whose three terms make every error up to four times as large, and <K, D>^2 sixteen times. */
#include "tests/support/harness.h"
#include "tests/support/normals.h"

#include "cka/cka.h"
#include "ptq/base/rng.h"
#include "ptq/base/scope.h"

#define RELATIVE 1e-8L       /* metrics without Gram matrices: sums of n d terms of one sign */
#define ABSOLUTE 0x1p-60L    /* the resolution of the oracle's 1 - CKA */

typedef long double real;

/* Centres the columns of x, then returns K = X X^T [n, n]. */
static real *gram(real *x, size_t n, size_t d)
{
    real *k;
    ck_ok(CALM_NEW(ctx, ctx->scratch, k, n * n));
    for (size_t j = 0; j < d; j++) {
        real mean = 0;
        for (size_t i = 0; i < n; i++)
            mean += x[i * d + j] / (real)n;
        for (size_t i = 0; i < n; i++)
            x[i * d + j] -= mean;
    }
    for (size_t i = 0; i < n; i++)
        for (size_t l = 0; l <= i; l++) {
            real sum = 0;    /* a register: 80-bit loads and stores at every step take four times as long */
            for (size_t j = 0; j < d; j++)
                sum += x[i * d + j] * x[l * d + j];
            k[i * n + l] = k[l * n + i] = sum;
        }
    return k;
}

/* Returns <K, L>, or h(K, L) if debiased. */
static real inner(const real *k, const real *l, size_t n, bool debias)
{
    real sum = 0, lost = 0, diagonal = 0, trace_k = 0, trace_l = 0, m = (real)n;
    for (size_t i = 0; i < n * n; i++) {    /* Kahan's compensated sum */
        real term = k[i] * l[i] - lost, next = sum + term;
        lost = (next - sum) - term;
        sum = next;
    }
    for (size_t i = 0; i < n; i++) {
        diagonal += k[i * n + i] * l[i * n + i];
        trace_k += k[i * n + i];
        trace_l += l[i * n + i];
    }
    return debias ? sum - m / (m - 2) * diagonal + trace_k * trace_l / ((m - 1) * (m - 2)) : sum;
}

/* Returns how much larger the terms of h are than h: the digits of double that debiasing costs. */
static real condition(const real *k, size_t n)
{
    real debiased = inner(k, k, n, true);
    return debiased > 0 ? inner(k, k, n, false) / debiased : INFINITY;
}

/* A metric's value and its tolerance. */
typedef struct expected {
    real value, tolerance;
} expected;

/* What calm fits over the rows that cka_drop keeps: the scale s, rounded to 11 bits, and the column means. */
typedef struct fit {
    real scale, *centre;
} fit;

static fit fit_of(const real *y, const real *z, size_t n, size_t d)
{
    fit out = {1, NULL};
    real yy = 0, yz = 0;
    int exponent;
    ck_ok(CALM_NEW(ctx, ctx->scratch, out.centre, d));
    for (size_t j = 0; j < d; j++) {
        for (size_t i = 0; i < n; i++)
            out.centre[j] += y[i * d + j] / (real)n;
        for (size_t i = 0; i < n; i++) {
            yy += (y[i * d + j] - out.centre[j]) * (y[i * d + j] - out.centre[j]);
            yz += (y[i * d + j] - out.centre[j]) * z[i * d + j];
        }
    }
    if (yy > 0) {
        const real mantissa = frexpl(yz / yy, &exponent);
        out.scale = ldexpl(nearbyintl(ldexpl(mantissa, 11)), exponent - 11);
    }
    return out;
}

/* The norms that bound the error of a sum. */
typedef struct sizes {
    real q, p;    /* Q and P of the bound above */
} sizes;

/* `centre` [d]: the vector that calm subtracts from the rows before it multiplies them; NULL: their mean. */
static sizes sizes_of(const real *y, const real *z, size_t n, size_t d, real scale, const real *centre)
{
    real spread = 0, error = 0, middle = 0;
    for (size_t j = 0; j < d; j++) {
        real mean = 0;
        for (size_t i = 0; i < n && !centre; i++)
            mean += y[i * d + j] / (real)n;
        for (size_t i = 0; i < n; i++) {
            const real sy = scale * y[i * d + j], e = z[i * d + j] - sy;
            const real off = y[i * d + j] - (centre ? centre[j] : mean);
            spread += off * off;
            error += e * e;
            middle += (sy + e / 2) * (sy + e / 2);
        }
    }
    return (sizes){spread, 2 * sqrtl(error * middle)};
}

/* Returns the number of products in calm's sums: over columns or rows, then over the smaller square matrix
 * (products.h). */
static real terms(size_t n, size_t d)
{
    const size_t side = n <= 2 * d + 1 ? n : d;
    return (real)(side * side + n + d);
}

/* Returns the bound on the rounding error in double of calm's loss, for Gram matrices k and l. */
static real rounding(const real *k, const real *l, size_t n, size_t d, sizes of, real scale, bool debias, real loss)
{
    const real kk = inner(k, k, n, false), ll = inner(l, l, n, false), both = scale * scale * of.q + of.p;
    const real spread = of.q * of.q / kk, g = terms(n, d) * 0x1p-53L;
    const real once = 9 * g * spread * spread * (of.p * of.p + fabsl(loss) * both * both) / ll;
    return debias ? 16 * condition(k, n) * condition(k, n) * condition(l, n) * once : once;
}

static expected cka_of(real *y, real *z, size_t n, size_t d, bool debias, real scale, const real *centre)
{
    const sizes of = sizes_of(y, z, n, d, scale, centre);
    real *k = gram(y, n, d), *l = gram(z, n, d);
    real loss = 1 - inner(k, l, n, debias) / (sqrtl(inner(k, k, n, debias)) * sqrtl(inner(l, l, n, debias)));
    real cost = debias ? fmaxl(condition(k, n), condition(l, n)) : 1;
    return (expected){loss, cost * ABSOLUTE + rounding(k, l, n, d, of, scale, debias, loss)};
}

static real norm(const float *x, size_t d)
{
    real sum = 0;
    for (size_t j = 0; j < d; j++)
        sum += (real)x[j] * x[j];
    return sqrtl(sum);
}

static real median_norm(const float *y, size_t n, size_t d)
{
    real lower = 0, upper = 0, *norms;
    ck_ok(CALM_NEW(ctx, ctx->scratch, norms, n));
    for (size_t i = 0; i < n; i++)
        norms[i] = norm(y + i * d, d);
    for (size_t i = 0; i < n; i++) {
        size_t below = 0, equal = 0;
        for (size_t l = 0; l < n; l++) {
            below += norms[l] < norms[i];
            equal += norms[l] == norms[i];
        }
        if (below <= (n - 1) / 2 && (n - 1) / 2 < below + equal)
            lower = norms[i];
        if (below <= n / 2 && n / 2 < below + equal)
            upper = norms[i];
    }
    return (lower + upper) / 2;
}

/* Writes the rows that a CKA metric uses as real matrices and returns their number.  `weight` [n] is the factor that
 * the rows already have; NULL: 1. */
static size_t rows_of(calm_metric metric, const float *y, const float *z, const float *weight, size_t n, size_t d,
                      real *out_y, real *out_z)
{
    const real median = median_norm(y, n, d), limit = 6 * median;
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        if (metric == CALM_METRIC_CKA_DROP && norm(y + i * d, d) > limit)
            continue;
        const real floor = fmaxl(norm(y + i * d, d), median / 8);
        real divisor = metric == CALM_METRIC_CKA_TOKEN ? floor / (weight ? (real)weight[i] : 1) : 1;
        for (size_t j = 0; j < d; j++) {
            out_y[m * d + j] = divisor > 0 ? y[i * d + j] / divisor : 0;
            out_z[m * d + j] = divisor > 0 ? z[i * d + j] / divisor : 0;
        }
        m++;
    }
    return m;
}

static expected plain(calm_metric metric, const float *y, const float *z, const float *weight, size_t n, size_t d)
{
    real error = 0, abs_error = 0, abs_y = 0, spread = 0, log_sum = 0, angle = 0, shares = 0;
    for (size_t j = 0; j < d; j++) {
        real mean = 0;
        for (size_t i = 0; i < n; i++)
            mean += (real)y[i * d + j] / (real)n;
        for (size_t i = 0; i < n; i++)
            spread += (y[i * d + j] - mean) * (y[i * d + j] - mean);
    }
    for (size_t i = 0; i < n; i++) {
        real ee = 0, yy = 0, zz = 0, yz = 0;
        for (size_t j = i * d; j < (i + 1) * d; j++) {
            real e = (real)z[j] - y[j];
            ee += e * e;
            yy += (real)y[j] * y[j];
            zz += (real)z[j] * z[j];
            yz += (real)y[j] * z[j];
            abs_error += fabsl(e);
            abs_y += fabsl((real)y[j]);
        }
        const real share = weight ? (real)weight[i] * weight[i] : 1;
        error += ee;
        shares += share;
        log_sum += share * logl(ee / yy);
        angle += share * (1 - yz / sqrtl(yy * zz));
    }
    real value = metric == CALM_METRIC_REL_MSE ? error / spread : metric == CALM_METRIC_REL_MAE ? abs_error / abs_y
                 : metric == CALM_METRIC_COSINE ? angle / shares : log_sum / shares;
    /* A cosine of few columns may cancel to 1, up to the rounding of double. */
    return (expected){value, 1e-15L + RELATIVE * fabsl(value)};
}

static void compare(const char *name, const float *y, const float *z, const float *weight, size_t n, size_t d)
{
    calm_score_ref *ref;
    calm_scores scores;
    real *ry, *rz;
    CALM_SCOPED_SCRATCH(ctx);
    ck_ok(CALM_NEW(ctx, ctx->scratch, ry, n * d));
    ck_ok(CALM_NEW(ctx, ctx->scratch, rz, n * d));
    const size_t kept = rows_of(CALM_METRIC_CKA_DROP, y, z, weight, n, d, ry, rz);
    const fit found = fit_of(ry, rz, kept, d);
    ck_ok(calm_score_prepare_weighted(ctx, y, n, d, weight, &ref));
    ck_ok(calm_score(ctx, ref, z, &scores));
    ck_assert_uint_eq(scores.n_dropped, n - kept);
    for (int i = 0; i < CALM_N_METRICS; i++) {
        calm_arena_mark mark = calm_arena_save(ctx->scratch);
        calm_metric metric = (calm_metric)i;
        expected want;
        if (metric <= CALM_METRIC_CKA_DROP) {
            const size_t m = rows_of(metric, y, z, weight, n, d, ry, rz);
            want = cka_of(ry, rz, m, d, metric == CALM_METRIC_CKA_DEBIASED, found.scale,
                          metric == CALM_METRIC_CKA_TOKEN ? NULL : found.centre);
        } else {
            want = plain(metric, y, z, weight, n, d);
        }
        /* If the sign of h(L, L) is uncertain there is no cosine, and calm returns 1. */
        if (isfinite(want.tolerance) && isfinite(want.value))
            ck_assert_msg(fabsl(scores.value[i] - want.value) <= want.tolerance,
                          "%s, %zu x %zu: %s is %.17g, expected %.17Lg within %Lg", name, n, d,
                          calm_metric_name(metric), scores.value[i], want.value, want.tolerance);
        calm_arena_rewind(ctx->scratch, mark);
    }
}

static const size_t shapes[][2] = {{4, 1}, {5, 2}, {6, 3}, {9, 40}, {33, 16}, {64, 16}, {300, 7}, {40, 300}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

/* Properties of Y, and what is done to it in addition to noise. */
typedef struct recipe {
    const char *name;
    double factor, mean, scale;    /* factor of rows 0 and 3; column means; factor of Z */
    bool turned;                    /* rotates two columns, which CKA does not see */
} recipe;

static const recipe recipes[] = {
    {"plain", 1, 0, 1, false},        {"massive rows", 200, 0, 1, false}, {"shifted columns", 1, 50, 1, false},
    {"shrunk", 1, 0, 0.77, false},    {"negated", 1, 1, -2, false},       {"turned", 1, 0, 1, true},
    {"all of it", 60, 5, 0.9, true},  {"tiny rows", 1e-3, 0, 1, false},   {"zero rows", 0, 0, 1, false},
};

static void make(const recipe *r, double noise, size_t n, size_t d, float *y, float *z)
{
    const double *normals = test_normals(3, 1, n * d);
    for (size_t i = 0; i < n * d; i++) {
        double factor = i / d == 0 || i / d == 3 ? r->factor : 1;
        y[i] = (float)(factor * normals[i] * (1 + (double)(i % d) / 4) + r->mean * (double)(i % d + 1));
    }
    normals = test_normals(3, 2, n * d);
    for (size_t i = 0; i < n * d; i++) {
        double v = y[i];
        if (r->turned && d > 1 && i % d < 2)
            v = i % d == 0 ? 0.96 * y[i] + 0.28 * y[i + 1] : 0.96 * y[i] - 0.28 * y[i - 1];
        z[i] = (float)(r->scale * v + noise * normals[i]);
    }
}

/* Noise from 1e-4, where 1 - CKA is near 1e-8, to outputs that are only noise. */
TEST(all_metrics_agree_with_their_definitions)
{
    for (size_t r = 0; r < sizeof recipes / sizeof *recipes; r++)
        for (int shape = 0; shape < N_SHAPES; shape++)
            for (double noise = 1e-4; noise < 1e4; noise *= shapes[shape][0] < 300 ? 10 : 100) {
                size_t n = shapes[shape][0], d = shapes[shape][1];
                float *y, *z;
                calm_arena_clear(ctx->out);
                ck_ok(CALM_NEW(ctx, ctx->out, y, n * d));
                ck_ok(CALM_NEW(ctx, ctx->out, z, n * d));
                make(&recipes[r], noise, n, d, y, z);
                compare(recipes[r].name, y, z, NULL, n, d);
            }
}
END_OF_TEST

/* Rows have factors from 2^-4 to 1, as outputs of an expert have router weights.  Metrics that give every token the
 * same weight use the squares of these. */
TEST(weighted_rows)
{
    for (int shape = 0; shape < N_SHAPES; shape++)
        for (double noise = 1e-4; noise < 10; noise *= 10) {
            size_t n = shapes[shape][0], d = shapes[shape][1];
            float *y, *z, *weight;
            calm_arena_clear(ctx->out);
            ck_ok(CALM_NEW(ctx, ctx->out, y, n * d));
            ck_ok(CALM_NEW(ctx, ctx->out, z, n * d));
            ck_ok(CALM_NEW(ctx, ctx->out, weight, n));
            make(&recipes[0], noise, n, d, y, z);
            for (size_t i = 0; i < n; i++)
                weight[i] = (float)exp2(-4 * calm_rng_uniform(3, 4, i));
            for (size_t i = 0; i < n * d; i++) {
                y[i] *= weight[i / d];
                z[i] *= weight[i / d];
            }
            compare("weighted", y, z, weight, n, d);
        }
}
END_OF_TEST

int main(void)
{
    return run_tests("cka_oracle",
                     (const TTest *[]){all_metrics_agree_with_their_definitions, weighted_rows, NULL});
}
