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

/* Returns |found - expected| in units in the last place of `expected`. */
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
            calm_vec_exp_sum(1, 0, &x, &y);
            worst = test_worse(worst, ulps(y, exp((double)x)));
        }
    ck_assert_msg(worst <= 2, "largest error %g ulp", worst);
}
END_OF_TEST

TEST(exp_at_the_ends)
{
    const float x[] = {0, -0.0f, -87.31f, -1000, -FLT_MAX, 88, 89, FLT_MAX, 1e-30f};
    float y[9];
    calm_vec_exp_sum(9, 0, x, y);
    ck_assert(y[0] == 1 && y[1] == 1 && y[8] == 1);
    ck_assert(y[2] == 0 && y[3] == 0 && y[4] == 0);
    ck_assert(y[5] == y[6] && y[6] == y[7] && isfinite(y[5]) && ulps(y[5], exp(88)) <= 2);
}
END_OF_TEST

/* A value depends on its argument only: not on its place or the length of the row. */
TEST(exp_does_not_depend_on_the_place)
{
    float x[LONGEST], whole[LONGEST], one;
    fill(x, LONGEST, 20, 1);
    calm_vec_exp_sum(LONGEST, 0, x, whole);
    for (size_t i = 0; i < LONGEST; i++) {
        calm_vec_exp_sum(1, 0, x + i, &one);
        ck_assert(memcmp(&one, whole + i, sizeof one) == 0);
    }
    calm_vec_exp_sum(LONGEST, 0, x, x);    /* in place */
    ck_assert(memcmp(x, whole, sizeof x) == 0);
}
END_OF_TEST

/* A NaN must reach the code that checks the result, from any place. */
TEST(nan_stays)
{
    for (size_t at = 0; at < 20; at++) {
        float x[20], y[20], up[20];
        fill(x, 20, 1, at);
        fill(up, 20, 1, at);
        x[at] = NAN;
        calm_vec_exp_sum(20, 0, x, y);
        for (size_t i = 0; i < 20; i++)
            ck_assert((isnan(y[i]) != 0) == (i == at));
        ck_assert(isnan(calm_vec_exp_sum(20, 1, x, y)));
        memcpy(y, x, sizeof y);
        ck_assert(isnan(calm_vec_softmax_numerators(20, 1, y)));
        memcpy(y, x, sizeof y);
        calm_vec_silu_mul(20, y, up);
        ck_assert(isnan(y[at]));
        memcpy(y, x, sizeof y);
        calm_vec_clamped_glu(20, 1, 1.7f, y, up);
        ck_assert(isnan(y[at]));
        calm_vec_clamped_glu(20, 1, 1.7f, up, x);
        ck_assert(isnan(up[at]));
    }
    float infinite[] = {INFINITY, -INFINITY};
    calm_vec_exp_sum(2, 0, infinite, infinite);
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
            /* The argument has two roundings, which exp multiplies by |argument|; exp adds 2 ulp. */
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

/* Values within the limits, beyond them on either side, and at them. */
TEST(clamped_glu)
{
    const double limit = 2.5, alpha = 1.75;
    float gate[LONGEST], up[LONGEST], out[LONGEST];
    fill(gate, LONGEST, 4, 5);
    fill(up, LONGEST, 4, 6);
    gate[0] = 2.5f, gate[1] = -300, gate[2] = 300, up[3] = 2.5f, up[4] = -2.5f, up[5] = -1;
    memcpy(out, gate, sizeof out);
    calm_vec_clamped_glu(LONGEST, (float)limit, (float)alpha, out, up);
    for (size_t i = 0; i < LONGEST; i++) {
        const double g = fmin((double)gate[i], limit), u = fmin(fmax((double)up[i], -limit), limit);
        const double expected = (u + 1) * g / (1 + exp(-alpha * g));
        /* exp 4 eps and its argument's rounding; two sums, quotient and product.  u + 1 may cancel. */
        const double size = (fabs(u) + 1) * fabs(g) / (1 + exp(-alpha * g));
        ck_near(out[i], expected, size * (12 + 2 * alpha * fabs(g)) * EPS + 4 * fabs(g) * exp(-87.9));
    }
    ck_assert(out[5] == 0);
}
END_OF_TEST

/* The same without the product; from -88 down exp(-g) is clamped, and e^-88 remains. */
TEST(times_sigmoid)
{
    float gate[LONGEST], y[LONGEST], out[LONGEST];
    fill(gate, LONGEST, 8, 5);
    fill(y, LONGEST, 3, 6);
    gate[0] = 0, gate[1] = -200, gate[2] = 200;
    memcpy(out, y, sizeof out);
    calm_vec_sigmoid_mul(LONGEST, gate, out);
    for (size_t i = 0; i < LONGEST; i++) {
        const double expected = (double)y[i] / (1 + exp(-(double)gate[i]));
        ck_near(out[i], expected, fabs(expected) * 8 * EPS + fabs((double)y[i]) * exp(-87.9));
    }
    ck_assert(out[0] == y[0] / 2 && out[2] == y[2]);
}
END_OF_TEST

/* exp has 4 eps, its argument's rounding |g| eps; sum and quotient 2. */
TEST(silu)
{
    float x[LONGEST], y[LONGEST];
    fill(x, LONGEST, 10, 4);
    x[0] = 0, x[1] = -200, x[2] = 200;
    memcpy(y, x, sizeof y);
    calm_vec_silu(LONGEST, y);
    for (size_t i = 0; i < LONGEST; i++) {
        const double g = (double)x[i], expected = g / (1 + exp(-g));
        ck_near(y[i], expected, fabs(expected) * 8 * EPS + fabs(g) * exp(-87.9));
    }
    ck_assert(y[0] == 0 && y[2] == 200);
}
END_OF_TEST

/* 1 + erf rounds by an eps of at most 2, and x/sqrt 2 by an eps of itself, whose effect, with the derivative
 * exp(-x^2/2), is below one more: an absolute error of |x|/2 times 4 eps. */
TEST(gelu)
{
    float x[LONGEST], y[LONGEST];
    fill(x, LONGEST, 3, 5);
    x[0] = 0, x[1] = -20, x[2] = 20, x[3] = -FLT_MAX, x[4] = FLT_MAX;
    memcpy(y, x, sizeof y);
    calm_vec_gelu(LONGEST, y);
    for (size_t i = 0; i < LONGEST; i++) {
        const double g = (double)x[i];
        ck_near(y[i], 0.5 * g * (1 + erf(g / sqrt(2))), 0.5 * fabs(g) * 4 * EPS);
    }
    ck_assert(y[0] == 0 && y[1] == 0 && y[2] == 20 && y[4] == FLT_MAX);
}
END_OF_TEST

/* x / (1 + exp(-2z)): z has 6 roundings, whose error exp multiplies by |2z|; exp 4 eps, sum and quotient 2.  Below x
 * = -5 less than 1e-6 of x remains, with the same relative error. */
TEST(gelu_by_tanh)
{
    float x[LONGEST], y[LONGEST];
    fill(x, LONGEST, 3, 6);
    x[0] = 0, x[1] = -30, x[2] = 30, x[3] = -1e15f, x[4] = 1e15f;
    memcpy(y, x, sizeof y);
    calm_vec_gelu_tanh(LONGEST, y);
    for (size_t i = 5; i < LONGEST; i++) {
        const double g = (double)x[i], z = sqrt(2 / acos(-1)) * (g + 0.044715 * g * g * g);
        const double expected = g / (1 + exp(-2 * z));    /* = g/2 (1 + tanh z), which cancels */
        ck_near(y[i], expected, fabs(expected) * (12 * fabs(z) + 8) * EPS);
        ck_near(expected, 0.5 * g * (1 + tanh(z)), 1e-15 * fabs(g));
    }
    ck_assert(y[0] == 0 && fabsf(y[1]) < 1e-30f && y[2] == 30 && fabsf(y[3]) < 1e-20f && y[4] == 1e15f);
}
END_OF_TEST

/* The exponent has 2 roundings, which exp multiplies by 1.702 |x|, and that of 1.702f; exp 4 eps, sum and quotient
 * 2. */
TEST(gelu_by_sigmoid)
{
    float x[LONGEST], y[LONGEST];
    fill(x, LONGEST, 3, 9);
    x[0] = 0, x[1] = -200, x[2] = 200, x[3] = -FLT_MAX, x[4] = FLT_MAX;
    memcpy(y, x, sizeof y);
    calm_vec_gelu_quick(LONGEST, y);
    for (size_t i = 5; i < LONGEST; i++) {
        const double g = (double)x[i], expected = g / (1 + exp(-1.702 * g));
        ck_near(y[i], expected, fabs(expected) * (3 * 1.702 * fabs(g) + 8) * EPS);
    }
    ck_assert(y[0] == 0 && fabsf(y[1]) < 1e-30f && y[2] == 200 && fabsf(y[3]) < 10 && y[4] == FLT_MAX);
}
END_OF_TEST

TEST(relu_and_products)
{
    float x[LONGEST], y[LONGEST], z[LONGEST];
    fill(x, LONGEST, 3, 7);
    fill(z, LONGEST, 3, 8);
    memcpy(y, x, sizeof y);
    calm_vec_relu(LONGEST, y);
    for (size_t i = 0; i < LONGEST; i++)
        ck_assert(y[i] == (x[i] > 0 ? x[i] : 0));
    memcpy(y, x, sizeof y);
    calm_vec_mul(LONGEST, z, y);
    for (size_t i = 0; i < LONGEST; i++)
        ck_assert(y[i] == x[i] * z[i]);
    float sum[LONGEST];
    memcpy(sum, y, sizeof sum);
    calm_vec_mul_add(LONGEST, x, z, sum);
    for (size_t i = 0; i < LONGEST; i++)
        ck_assert(sum[i] == y[i] + x[i] * z[i]);
    memcpy(y, x, sizeof y);
    calm_vec_axpy(LONGEST, 0.5f, z, y);
    for (size_t i = 0; i < LONGEST; i++)
        ck_assert(y[i] == x[i] + 0.5f * z[i]);
}
END_OF_TEST

/* Relative, also near 0: argument, scale and product are rounded (3 eps, and 2 for the constant scale / cap); the
 * polynomial and the exponential are within 4 eps, and tanh shrinks an argument's relative error. */
TEST(soft_cap)
{
    static const float caps[] = {0.25f, 3, 30, 50}, scales[] = {1, 0.0625f, 0.2236068f};
    for (size_t c = 0; c < 4; c++)
        for (size_t s = 0; s < 3; s++)
            for (double size = 1e-6; size < 1e7; size *= 7) {
                float x[LONGEST], y[LONGEST];
                fill(x, LONGEST, size, 9);
                x[0] = 0, x[1] = -0.0f;
                memcpy(y, x, sizeof y);
                calm_vec_soft_cap(LONGEST, scales[s], caps[c], y);
                for (size_t i = 0; i < LONGEST; i++) {
                    const double expected = (double)caps[c] * tanh((double)scales[s] * (double)x[i] / (double)caps[c]);
                    ck_near(y[i], expected, fabs(expected) * 9 * EPS);
                    ck_assert(fabsf(y[i]) <= caps[c]);
                }
            }
}
END_OF_TEST

/* mean and factor are rounded to float, the difference, two products and the sum once each: 2^-24 of |x| and |mean|
 * for the difference, then 4 of the product, 1 of the result. */
TEST(layernorm)
{
    for (size_t d = 1; d <= LONGEST; d++) {
        float x[LONGEST], weight[LONGEST], bias[LONGEST], out[LONGEST];
        double mean = 0, variance = 0;
        fill(x, d, 100, d);
        fill(weight, d, 1, d + 1000);
        fill(bias, d, 1, d + 2000);
        for (size_t i = 0; i < d; i++)
            mean += (double)(x[i] += 40) / (double)d;
        for (size_t i = 0; i < d; i++)
            variance += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)d;
        calm_vec_layernorm(d, x, weight, bias, 1e-5f, out);
        for (size_t i = 0; i < d; i++) {
            const double factor = (double)weight[i] / sqrt(variance + (double)1e-5f),
                         term = ((double)x[i] - mean) * factor;
            const double expected = term + (double)bias[i];
            ck_near(out[i], expected,
                    (fabs(factor) * (fabs((double)x[i]) + fabs(mean)) + 4 * fabs(term) + fabs(expected)) * EPS + 1e-30);
        }
        calm_vec_layernorm(d, x, weight, bias, 1e-5f, x);    /* in place */
        ck_assert(memcmp(x, out, d * sizeof *x) == 0);
    }
}
END_OF_TEST

/* A NaN stays a NaN, whatever is next to it. */
TEST(nan_stays_in_activations)
{
    for (size_t at = 0; at < 20; at++) {
        float x[20], y[20];
        const float ones[20] = {1};
        fill(x, 20, 1, at);
        x[at] = NAN;
        void (*const functions[])(size_t, float *) = {calm_vec_silu, calm_vec_gelu, calm_vec_gelu_tanh,
                                                      calm_vec_gelu_quick, calm_vec_relu};
        for (size_t f = 0; f < sizeof functions / sizeof *functions; f++) {
            memcpy(y, x, sizeof y);
            functions[f](20, y);
            for (size_t i = 0; i < 20; i++)
                ck_assert((isnan(y[i]) != 0) == (i == at));
        }
        memcpy(y, x, sizeof y);
        calm_vec_soft_cap(20, 1, 5, y);
        ck_assert(isnan(y[at]) && !isnan(y[(at + 1) % 20]));
        calm_vec_layernorm(20, x, ones, ones, 1e-5f, y);
        ck_assert(isnan(y[0]) && isnan(y[19]));
    }
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
        ck_near(calm_vec_dot(d, x, x), sumsq, sumsq * 1e-14);
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
    return run_tests("vector",
                     (const TTest *[]){exp_is_within_2_ulp, exp_at_the_ends,
                                       exp_does_not_depend_on_the_place, nan_stays, softmax_numerators,
                                       exp_sum, silu_times_up, clamped_glu, times_sigmoid, silu, gelu, gelu_by_tanh,
                                       gelu_by_sigmoid, relu_and_products, soft_cap, layernorm,
                                       nan_stays_in_activations, rmsnorm, max_and_its_first_place, sums, NULL});
}
