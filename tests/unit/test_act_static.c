/* The static scale of activations, against its definition. */
#include "ptq/quant/act_static.h"

#include <math.h>

#include "ptq/base/rng_impl.h"
#include "ptq/quant/grid.h"
#include "tests/support/harness.h"

#define N 40
#define D 6

static const calm_scheme w8a8 = {.bits = 8, .symmetric = true, .act_bits = 8, .act_rule = CALM_ACT_RULE_STATIC,
                                 .scale_dtype = CALM_BF16};

static const calm_scheme fp8 = {.bits = 8, .symmetric = true, .act_bits = 8, .family = CALM_FAMILY_FP8,
                                .act_rule = CALM_ACT_RULE_FP8_STATIC, .scale_dtype = CALM_BF16};

/* Returns the loss of a scale and, unless NULL, the scale of least loss for its codes. */
static double loss_of(const calm_act_rows *rows, float scale, double *refit)
{
    double sum = 0, along = 0, square = 0;
    for (size_t t = 0; t < rows->n; t++)
        for (size_t j = 0; j < rows->d; j++) {
            float y = rows->x[t * rows->d + j] / (rows->in_scale ? rows->in_scale[j] : 1), z;
            calm_actquant_rows(&y, 1, 1, 8, false, CALM_ACT_RULE_STATIC, scale, &z);
            sum += rows->weights[j] * ((double)y - (double)z) * ((double)y - (double)z);
            /* A code of 8 bits times a bfloat16 scale is exact in float32, so z / scale is the code. */
            along += rows->weights[j] * (double)y * (double)(z / scale);
            square += rows->weights[j] * (double)(z / scale) * (double)(z / scale);
        }
    if (refit)
        *refit = along / square;
    return sum;
}

/* Makes rows of which one channel is `outlier` times the others, and its errors count as little. */
static calm_act_rows draw(float *x, float *absmax, double *weights, float outlier)
{
    for (size_t j = 0; j < D; j++) {
        absmax[j] = 0;
        weights[j] = j == D - 1 ? 0.09 / ((double)outlier * (double)outlier) : 1;
    }
    for (size_t i = 0; i < N * D; i++) {
        x[i] = (float)calm_rng_normal(3, 1, i) * (i % D == D - 1 ? outlier : 1);
        absmax[i % D] = fmaxf(absmax[i % D], fabsf(x[i]));
    }
    return (calm_act_rows){.x = x, .n = N, .d = D, .weights = weights, .absmax = absmax};
}

/* By definition (docs/method.md, section 1): none of the 33 starting values is better than the scale found, and least
 * squares for its codes does not improve it, at least in the stored scale.  The losses of one scale here and in calm
 * sum the same N D terms, none below 0, in different orders: they differ by at most 2 N D 2^-53 of the loss. */
static void check_least(float outlier)
{
    float x[N * D], absmax[D];
    double weights[D], most = 0, refit;
    const calm_act_rows rows = draw(x, absmax, weights, outlier);
    const float scale = calm_act_static_scale(&w8a8, &rows);
    for (size_t j = 0; j < D; j++)
        most = fmax(most, (double)absmax[j]);
    const double found = loss_of(&rows, scale, &refit), order = 2 * N * D * 0x1p-53 * found;
    for (int k = 0; k < 33; k++) {
        const double start = loss_of(&rows, calm_scale_round(&w8a8, 0, most / 127.5 * exp2(-k / 4.0)), NULL);
        ck_assert_msg(found <= start + order, "%g, start %d has %g", found, k, start);
        ck_assert(k > 0 || found + order < start);
    }
    const double again = loss_of(&rows, calm_scale_round(&w8a8, 0, refit), NULL);
    ck_assert_msg(found <= again + order, "%g, least squares %g", found, again);
    ck_assert(scale == calm_scale_round(&w8a8, 0, scale));
}

/* The best starting value is not that of the range, with the second outlier it is the last one: without a search, or
 * with a shorter one, this test would fail. */
TEST(least_of_the_search)
{
    check_least(30);
    check_least(4000);
}
END_OF_TEST

/* Rows are divided by an input scale first: divided rows without one have the same scale. */
TEST(input_scales)
{
    float x[N * D], absmax[D], in_scale[D], divided[N * D], divided_absmax[D];
    double weights[D];
    calm_act_rows rows = draw(x, absmax, weights, 4), plain = rows;
    for (size_t j = 0; j < D; j++) {
        in_scale[j] = ldexpf(1, (int)j - 3);
        divided_absmax[j] = absmax[j] / in_scale[j];
    }
    for (size_t i = 0; i < N * D; i++)
        divided[i] = x[i] / in_scale[i % D];
    rows.in_scale = in_scale;
    plain.x = divided;
    plain.absmax = divided_absmax;
    ck_assert(calm_act_static_scale(&w8a8, &rows) == calm_act_static_scale(&w8a8, &plain));
}
END_OF_TEST

/* Float formats: the largest input, divided by the input scale, gets the largest level; rows are not used. */
TEST(small_floats)
{
    float absmax[D] = {1, 2, 56, 3, 4, 5}, in_scale[D] = {1, 1, 0.5f, 1, 1, 1}, zeros[D] = {0};
    calm_act_rows rows = {.d = D, .absmax = absmax};
    ck_assert(calm_act_static_scale(&fp8, &rows) == 0.125f);
    rows.in_scale = in_scale;
    ck_assert(calm_act_static_scale(&fp8, &rows) == 0.25f);
    rows.absmax = zeros;
    ck_assert(calm_act_static_scale(&fp8, &rows) == 1);
    absmax[0] = 3e38f;
    rows.absmax = absmax;
    ck_assert(isinf(calm_act_static_scale(&fp8, &rows)));
}
END_OF_TEST

/* Without rows the range decides; zeros have any scale; a scale that cannot be stored becomes infinite. */
TEST(ends)
{
    float x[N * D], absmax[D], zeros[D] = {0};
    double weights[D];
    calm_act_rows rows = draw(x, absmax, weights, 1);
    absmax[0] = 255;
    rows.n = 0;
    ck_assert(calm_act_static_scale(&w8a8, &rows) == 2);
    rows.absmax = zeros;
    ck_assert(calm_act_static_scale(&w8a8, &rows) == 1);
    absmax[0] = 1e9f;
    rows.absmax = absmax;
    ck_assert(isinf(calm_act_static_scale(&w8a8, &rows)));
}
END_OF_TEST

int main(void)
{
    return run_tests("act_static", (const TTest *[]){least_of_the_search, input_scales, small_floats, ends, NULL});
}
