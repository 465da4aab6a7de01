/* The static scale of activations, against all scales that could be stored instead. */
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

static double loss_of(const calm_act_rows *rows, float scale)
{
    double sum = 0;
    for (size_t t = 0; t < rows->n; t++)
        for (size_t j = 0; j < rows->d; j++) {
            float y = rows->x[t * rows->d + j] / (rows->in_scale ? rows->in_scale[j] : 1), z;
            calm_actquant_rows(&y, 1, 1, 8, false, CALM_ACT_RULE_STATIC, scale, &z);
            sum += rows->weights[j] * ((double)y - (double)z) * ((double)y - (double)z);
        }
    return sum;
}

/* Makes rows of which one channel is `outlier` times the others. */
static calm_act_rows draw(float *x, float *absmax, double *weights, float outlier)
{
    for (size_t j = 0; j < D; j++) {
        absmax[j] = 0;
        weights[j] = j == D - 1 ? 1e-4 : 1;
    }
    for (size_t i = 0; i < N * D; i++) {
        x[i] = (float)calm_rng_normal(3, 1, i) * (i % D == D - 1 ? outlier : 1);
        absmax[i % D] = fmaxf(absmax[i % D], fabsf(x[i]));
    }
    return (calm_act_rows){.x = x, .n = N, .d = D, .weights = weights, .absmax = absmax};
}

/* No bfloat16 scale is much better than the one found, and the one of the range is far worse.  The search steps by
 * 19 %, and least squares continues from its best scale to a zero of the gradient, one of many local minima. */
TEST(near_the_best)
{
    float x[N * D], absmax[D];
    double weights[D];
    const calm_act_rows rows = draw(x, absmax, weights, 30);
    const float scale = calm_act_static_scale(&w8a8, &rows);
    double best = INFINITY, most = 0;
    for (size_t j = 0; j < D; j++)
        most = fmax(most, (double)absmax[j]);
    for (double s = most / 127.5; s > most / 127.5 / 1024; s *= 0.997)
        best = fmin(best, loss_of(&rows, calm_scale_round(&w8a8, 0, s)));
    const double found = loss_of(&rows, scale), range = loss_of(&rows, calm_scale_round(&w8a8, 0, most / 127.5));
    ck_assert_msg(found <= 1.1 * best, "%g, the best has %g", found, best);
    ck_assert_msg(found < 0.8 * range, "%g, the range's has %g", found, range);
    ck_assert(scale == calm_scale_round(&w8a8, 0, scale));
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
    return run_tests("act_static", (const TTest *[]){near_the_best, input_scales, small_floats, ends, NULL});
}
