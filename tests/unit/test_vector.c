/* Kernels of the forward pass against libm in double.
 *
 * eps = 2^-24 is half a unit in the last place of a float32.  Each bound counts the roundings on the way. */
#include "ptq/tensor/vector.h"

#include <float.h>

#include "ptq/base/rng.h"
#include "tests/support/harness.h"

#define EPS 0x1p-24
#define LONGEST 131    /* several times the lanes, and a remainder */

static void fill(float *x, size_t n, double spread, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(spread * calm_rng_normal(seed, 0, i));
}

/* |found - expected| in units in the last place of `expected`. */
static double ulps(float found, double expected)
{
    return fabs((double)found - expected) / ldexp(1, ilogb(expected) - 23);
}

TEST(exp_is_within_2_ulp)
{
    double worst = 0;
    for (int i = -8720; i <= 8799; i++)
        for (int j = 0; j < 20; j++) {
            const float x = (float)(i / 100.0 + j * 0.0004999);
            float y;
            calm_vec_exp(1, &x, &y);
            const double error = ulps(y, exp((double)x));
            worst = error > worst ? error : worst;
        }
    ck_assert_msg(worst <= 2, "largest error %g ulp", worst);
}
END_OF_TEST

TEST(exp_at_the_ends)
{
    const float x[] = {0, -0.0f, -87.31f, -1000, -FLT_MAX, 88, 89, FLT_MAX, 1e-30f};
    float y[9];
    calm_vec_exp(9, x, y);
    ck_assert(y[0] == 1 && y[1] == 1 && y[8] == 1);
    ck_assert(y[2] == 0 && y[3] == 0 && y[4] == 0);
    ck_assert(y[5] == y[6] && y[6] == y[7] && isfinite(y[5]) && ulps(y[5], exp(88)) <= 2);
}
END_OF_TEST

/* A value depends on itself alone: not on its place, nor on the length of the row. */
TEST(exp_does_not_depend_on_the_place)
{
    float x[LONGEST], whole[LONGEST], one;
    fill(x, LONGEST, 20, 1);
    calm_vec_exp(LONGEST, x, whole);
    for (size_t i = 0; i < LONGEST; i++) {
        calm_vec_exp(1, x + i, &one);
        ck_assert(memcmp(&one, whole + i, sizeof one) == 0);
    }
    calm_vec_exp(LONGEST, x, x);    /* in place */
    ck_assert(memcmp(x, whole, sizeof x) == 0);
}
END_OF_TEST

/* A NaN must be seen by whoever checks the result, and may stand anywhere. */
TEST(nan_stays)
{
    for (size_t at = 0; at < 20; at++) {
        float x[20], y[20], up[20];
        fill(x, 20, 1, at);
        fill(up, 20, 1, at);
        x[at] = NAN;
        calm_vec_exp(20, x, y);
        for (size_t i = 0; i < 20; i++)
            ck_assert((isnan(y[i]) != 0) == (i == at));
        ck_assert(isnan(calm_vec_exp_sum(20, 1, x, y)));
        memcpy(y, x, sizeof y);
        ck_assert(isnan(calm_vec_softmax_numerators(20, 1, y)));
        memcpy(y, x, sizeof y);
        calm_vec_silu_mul(20, y, up);
        ck_assert(isnan(y[at]));
    }
    float infinite[] = {INFINITY, -INFINITY};
    calm_vec_exp(2, infinite, infinite);
    ck_assert(isfinite(infinite[0]) && infinite[1] == 0);
}
END_OF_TEST

TEST(softmax_numerators)
{
    for (size_t n = 1; n <= LONGEST; n++) {
        float x[LONGEST], y[LONGEST];
        double max = -INFINITY, sum = 0;
        const float scale = 0.125f;
        fill(x, n, 30, n);
        memcpy(y, x, sizeof y);
        for (size_t i = 0; i < n; i++)
            max = fmax(max, (double)x[i]);
        const float total = calm_vec_softmax_numerators(n, scale, y);
        for (size_t i = 0; i < n; i++) {
            /* The argument has two roundings, which exp multiplies by |argument|; exp itself adds 2 ulp. */
            const double argument = (double)scale * ((double)x[i] - max), expected = exp(argument);
            ck_near(y[i], expected, expected * (2 * fabs(argument) + 4) * EPS + 1e-37);
            sum += (double)y[i];
        }
        ck_near(total, sum, sum * (double)n * EPS);
        ck_assert(total >= 1);
    }
}
END_OF_TEST

TEST(exp_sum)
{
    for (size_t n = 1; n <= LONGEST; n++) {
        float x[LONGEST], out[LONGEST];
        double sum = 0;
        fill(x, n, 5, n);
        const float shift = calm_vec_max(n, x);
        const double found = calm_vec_exp_sum(n, shift, x, out);
        for (size_t i = 0; i < n; i++)
            sum += (double)out[i];
        ck_near(found, sum, sum * 1e-14);
        ck_near(out[n - 1], exp((double)x[n - 1] - (double)shift), 40 * EPS);
    }
}
END_OF_TEST

TEST(silu_times_up)
{
    float gate[LONGEST], up[LONGEST], out[LONGEST];
    fill(gate, LONGEST, 8, 2);
    fill(up, LONGEST, 3, 3);
    gate[0] = 0, gate[1] = -200, gate[2] = 200, up[1] = up[2] = 1;
    memcpy(out, gate, sizeof out);
    calm_vec_silu_mul(LONGEST, out, up);
    for (size_t i = 0; i < LONGEST; i++) {
        const double g = (double)gate[i], expected = g / (1 + exp(-g)) * (double)up[i];
        /* exp 4 eps, sum, quotient and product 2 each; from -88 down exp(-g) is clamped, and |g| e^-88 remains. */
        ck_near(out[i], expected, fabs(expected) * 10 * EPS + fabs(g) * exp(-87.9));
    }
    ck_assert(out[0] == 0 && out[2] == 200);
    ck_assert(fabsf(out[1]) < 1e-30f);
}
END_OF_TEST

TEST(rmsnorm)
{
    for (size_t d = 1; d <= LONGEST; d++) {
        float x[LONGEST], weight[LONGEST], out[LONGEST];
        double sumsq = 0;
        fill(x, d, 100, d);
        fill(weight, d, 1, d + 1000);
        for (size_t i = 0; i < d; i++)
            sumsq += (double)x[i] * (double)x[i];
        ck_near(calm_vec_sumsq(d, x), sumsq, sumsq * 1e-14);
        calm_vec_rmsnorm(d, x, weight, 1e-6f, out);
        for (size_t i = 0; i < d; i++) {
            const double expected = (double)x[i] / sqrt(sumsq / (double)d + (double)1e-6f) * (double)weight[i];
            ck_near(out[i], expected, fabs(expected) * 4 * EPS);    /* the factor and two products, rounded */
        }
        calm_vec_rmsnorm(d, x, weight, 1e-6f, x);    /* in place */
        ck_assert(memcmp(x, out, d * sizeof *x) == 0);
    }
}
END_OF_TEST

TEST(max_and_its_first_place)
{
    for (size_t n = 1; n <= LONGEST; n++)
        for (size_t at = 0; at < n; at++) {
            float x[LONGEST];
            fill(x, n, 1, n);
            x[at] = 50;
            ck_assert(calm_vec_max(n, x) == 50);
            ck_assert_uint_eq(calm_vec_argmax(n, x), at);
            if (at + 1 < n)
                x[n - 1] = 50;
            ck_assert_uint_eq(calm_vec_argmax(n, x), at);
        }
}
END_OF_TEST

TEST(sums)
{
    for (size_t n = 1; n <= LONGEST; n++) {
        float p[LONGEST], a[LONGEST], b[LONGEST], y[LONGEST];
        double expected = 0, size = 0;
        fill(p, n, 1, n);
        fill(a, n, 10, n + 1);
        fill(b, n, 10, n + 2);
        for (size_t i = 0; i < n; i++) {
            const double term = (double)a[i] * (double)b[i];
            expected += term;
            size += fabs(term);
        }
        ck_near(calm_vec_dot(n, a, b), expected, size * 1e-14);
        memcpy(y, a, sizeof y);
        calm_vec_add(n, b, y);
        calm_vec_scale(n, 0.5f, y);
        for (size_t i = 0; i < n; i++)
            ck_assert(y[i] == 0.5f * (a[i] + b[i]));
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("vector", (const TTest *[]){
        exp_is_within_2_ulp, exp_at_the_ends, exp_does_not_depend_on_the_place, nan_stays, softmax_numerators, exp_sum, silu_times_up,
        rmsnorm, max_and_its_first_place, sums, NULL});
}
