/* Quantization of activations to float formats, against a search for the nearest level with scales computed by hand. */
#include "ptq/quant/act_levels.h"
#include "ptq/base/rng.h"
#include "ptq/quant/grid.h"
#include "tests/support/harness.h"

#define N 3
#define D 80

static float nearest_of(const calm_levels *levels, double x)
{
    float best = levels->value[0];
    for (size_t i = 1; i < levels->n; i++)
        if (fabs((double)levels->value[i] - x) < fabs((double)best - x))
            best = levels->value[i];
    return best;
}

/* Checks y for one group with scale s; the random values are on no tie. */
static void check_group(const calm_levels *levels, const float *x, size_t n, float s, const float *y)
{
    for (size_t j = 0; j < n; j++)
        ck_assert_msg(y[j] == nearest_of(levels, (double)(x[j] / s)) * s, "%g: %g, scale %g", x[j], y[j], s);
}

static float most_of(const float *x, size_t n)
{
    float most = 0;
    for (size_t j = 0; j < n; j++)
        most = fmaxf(most, fabsf(x[j]));
    return most;
}

TEST(nearest_levels)
{
    float x[N * D], y[N * D];
    for (size_t i = 0; i < N * D; i++)
        x[i] = (float)(calm_rng_normal(7, 1, i) * exp2(8 * calm_rng_normal(7, 2, i / 40)));
    const float global = calm_act_global(CALM_ACT_RULE_NVFP4, most_of(x, N * D));
    ck_assert(global == 448.0f * 6.0f / most_of(x, N * D));
    calm_actquant_rows(x, N, D, 8, false, CALM_ACT_RULE_FP8, 0, y);
    for (size_t t = 0; t < N; t++)
        check_group(&calm_levels_e4m3, x + t * D, D, most_of(x + t * D, D) / 448, y + t * D);
    calm_actquant_rows(x, N, D, 8, false, CALM_ACT_RULE_FP8_GROUPS, 0, y);
    for (size_t t = 0; t < N; t++)
        for (size_t g = 0; g < D; g += 128) {
            const size_t n = D - g < 128 ? D - g : 128;
            check_group(&calm_levels_e4m3, x + t * D + g, n, most_of(x + t * D + g, n) / 448, y + t * D + g);
        }
    /* A static scale for all rows, which clips the largest ones to the largest level. */
    const float fixed = most_of(x, D) / 448;
    calm_actquant_rows(x, N, D, 8, false, CALM_ACT_RULE_FP8_STATIC, fixed, y);
    check_group(&calm_levels_e4m3, x, N * D, fixed, y);
    calm_actquant_rows(x, N, D, 4, false, CALM_ACT_RULE_MXFP4, 0, y);
    for (size_t t = 0; t < N; t++)
        for (size_t g = 0; g < D; g += 32) {
            const size_t n = D - g < 32 ? D - g : 32;
            const float most = most_of(x + t * D + g, n);
            float s = 0x1p-60f;
            while (most / s >= 7)
                s *= 2;
            check_group(&calm_levels_e2m1, x + t * D + g, n, s, y + t * D + g);
        }
    calm_actquant_rows(x, N, D, 4, false, CALM_ACT_RULE_NVFP4, global, y);
    for (size_t t = 0; t < N; t++)
        for (size_t g = 0; g < D; g += 16) {
            const float stored = nearest_of(&calm_levels_e4m3, (double)(global * (most_of(x + t * D + g, 16) / 6)));
            const float s = (stored == 0 ? 0.125f : stored) / global;
            check_group(&calm_levels_e2m1, x + t * D + g, 16, s, y + t * D + g);
        }
}
END_OF_TEST

TEST(zeros_and_what_is_not_finite)
{
    static const calm_act_rule rules[] = {CALM_ACT_RULE_FP8, CALM_ACT_RULE_FP8_GROUPS, CALM_ACT_RULE_MXFP4,
                                           CALM_ACT_RULE_NVFP4, CALM_ACT_RULE_FP8_STATIC};
    for (size_t k = 0; k < 5; k++) {
        float x[3 * 16] = {0};
        x[16] = NAN;
        x[32] = INFINITY;
        x[33] = 1;
        ck_assert(calm_act_rule_is_float(rules[k]));
        calm_act_levels(x, 3, 16, rules[k], 100, x);
        for (size_t j = 0; j < 16; j++)
            ck_assert(x[j] == 0);
        ck_assert(isnan(x[16]) && isnan(x[32]) && isnan(x[33]));
    }
    ck_assert(calm_act_global(CALM_ACT_RULE_NVFP4, 0) == 1 && calm_act_global(CALM_ACT_RULE_FP8, 2) == 0);
    ck_assert(!calm_act_rule_is_float(CALM_ACT_RULE_VLLM) && calm_act_rule_is_open(CALM_ACT_RULE_VLLM));
    ck_assert(!calm_act_rule_is_open(CALM_ACT_RULE_FP8) && !calm_act_rule_is_open(CALM_ACT_RULE_STATIC));
    ck_assert(calm_act_rule_is_static(CALM_ACT_RULE_STATIC) && calm_act_rule_is_static(CALM_ACT_RULE_FP8_STATIC) &&
              !calm_act_rule_is_static(CALM_ACT_RULE_FP8));
}
END_OF_TEST

int main(void)
{
    return run_tests("act_levels", (const TTest *[]){nearest_levels, zeros_and_what_is_not_finite, NULL});
}
