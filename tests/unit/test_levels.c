/* Levels of float formats: tables against their definition, the nearest level against a search, bits of small
 * floats. */
#include "ptq/quant/levels.h"
#include "ptq/base/rng.h"
#include "ptq/quant/grid.h"
#include "tests/support/harness.h"

static const calm_levels *const all[] = {&calm_levels_e2m1, &calm_levels_e4m3, &calm_levels_iq4_nl};
#define N_ALL (sizeof all / sizeof *all)

/* Returns the value of a small float's bits, with a sign, e exponent bits and m mantissa bits. */
static double value_of_bits(unsigned bits, int e, int m)
{
    const int bias = (1 << (e - 1)) - 1;
    const unsigned exponent = bits >> m & ((1u << e) - 1), mantissa = bits & ((1u << m) - 1);
    const double magnitude = exponent ? ldexp((1 << m) + (int)mantissa, (int)exponent - bias - m)
                                      : ldexp(mantissa, 1 - bias - m);
    return bits >> (e + m) ? -magnitude : magnitude;
}

TEST(bits_are_those_of_the_format)
{
    static const int e[] = {2, 4}, m[] = {1, 3};
    for (size_t l = 0; l < 2; l++)
        for (unsigned bits = 0; bits < 1u << (1 + e[l] + m[l]); bits++) {
            if (l == 1 && (bits & 127) == 127)    /* NaN */
                continue;
            const uint8_t code = calm_levels_of_bits(all[l], (uint8_t)bits);
            ck_assert_uint_lt(code, all[l]->n);
            ck_assert(all[l]->value[code] == value_of_bits(bits, e[l], m[l]));
            if (bits != 1u << (e[l] + m[l]))    /* -0 */
                ck_assert_uint_eq(calm_levels_bits(all[l], code), bits);
        }
    ck_assert_uint_eq(calm_levels_bits(&calm_levels_e2m1, 7), 0);
    ck_assert_uint_eq(calm_levels_bits(&calm_levels_e4m3, 126), 0);
}
END_OF_TEST

TEST(levels_rise_and_have_codes)
{
    for (size_t l = 0; l < N_ALL; l++)
        for (size_t i = 0; i < all[l]->n; i++) {
            double x = all[l]->value[i];
            ck_assert(i == 0 || all[l]->value[i - 1] < all[l]->value[i]);
            ck_assert_uint_eq(calm_levels_code(all[l], x), i);
            calm_levels_nearest(all[l], &x, 1);
            ck_assert(x == (double)all[l]->value[i]);
        }
}
END_OF_TEST

/* Checks that no level is nearer; between two equally near ones the even mantissa wins, in tables the upper one. */
static void check_nearest(const calm_levels *levels, double x)
{
    double found = x;
    calm_levels_nearest(levels, &found, 1);
    for (size_t i = 0; i < levels->n; i++) {
        const double other = levels->value[i];
        ck_assert_msg(fabs(found - x) <= fabs(other - x), "%g: %g, but %g is nearer", x, found, other);
        if (other != found && fabs(found - x) == fabs(other - x))
            ck_assert_msg(levels->least > 0 ? calm_levels_bits(levels, calm_levels_code(levels, found)) % 2 == 0
                                            : found > other, "%g: %g", x, found);
    }
}

TEST(nearest)
{
    for (size_t l = 0; l < N_ALL; l++) {
        const double most = all[l]->value[all[l]->n - 1];
        for (size_t i = 0; i + 1 < all[l]->n; i++)
            check_nearest(all[l], ((double)all[l]->value[i] + (double)all[l]->value[i + 1]) / 2);
        for (size_t i = 0; i < 5000; i++)
            check_nearest(all[l], calm_rng_normal(3, l, i) * most * exp2(-10 * calm_rng_uniform(4, l, i)));
        check_nearest(all[l], 1e6);
        check_nearest(all[l], -1e6);
        check_nearest(all[l], 1e-300);
    }
}
END_OF_TEST

static calm_scheme scheme_of(const char *name)
{
    calm_scheme scheme;
    ck_ok(calm_scheme_parse(ctx, name, &scheme));
    return scheme;
}

TEST(powers_of_two)
{
    const calm_scheme scheme = scheme_of("mxfp4a16");
    ck_assert(calm_scale_round(&scheme, 0, 1) == 1);
    ck_assert(calm_scale_round(&scheme, 0, 1.499) == 1);
    ck_assert(calm_scale_round(&scheme, 0, 1.5) == 2);
    ck_assert(calm_scale_round(&scheme, 0, 0.76) == 1);
    ck_assert(calm_scale_round(&scheme, 0, -3) == 0x1p-126f);
    ck_assert(calm_scale_round(&scheme, 0, 0) == 0x1p-126f);
    ck_assert(calm_scale_round(&scheme, 0, 0x1p15) == 0x1p15f);
    ck_assert(isinf(calm_scale_round(&scheme, 0, 0x1.8p15)));
    ck_assert(isnan(calm_scale_round(&scheme, 0, NAN)));
}
END_OF_TEST

TEST(multiples_of_a_global_number)
{
    const calm_scheme scheme = scheme_of("nvfp4a16");
    const float global = calm_scale_global(&scheme, 3);
    ck_assert(global == 448 * 6 / 3.0f);
    ck_assert(calm_scale_round(&scheme, global, 0.5) == 448 / global);    /* of the group with the 3 */
    ck_assert(calm_scale_round(&scheme, global, 9) == 448 / global);
    ck_assert(calm_scale_round(&scheme, global, 0) == 0x1p-9f / global);
    ck_assert(isnan(calm_scale_round(&scheme, global, NAN)));
    for (size_t i = 0; i < 1000; i++) {
        const float scale = calm_scale_round(&scheme, global, 0.5 * exp2(-18 * calm_rng_uniform(5, 1, i)));
        ck_assert(calm_scale_round(&scheme, global, scale) == scale);
    }
    ck_assert(calm_scale_global(&scheme, 0) == 1);
    ck_assert(isfinite(calm_scale_global(&scheme, 0x1p-149f)));
    ck_assert(calm_scale_global(&(calm_scheme){.bits = 4}, 3) == 0);
}
END_OF_TEST

/* Codes and weights of a family, by hand. */
TEST(grids)
{
    const double w[] = {-3, 0.2, 1.3, 6, 7};
    uint8_t codes[5];
    float back[5];
    const calm_scheme fp4 = scheme_of("mxfp4a16"), affine = scheme_of("q4_1"), table = scheme_of("iq4_nl");
    calm_grid grid = calm_grid_between(&fp4, 0, -3, 7);    /* 7 / 6 rounds up */
    ck_assert(grid.scale == 2);
    grid = calm_grid_between(&fp4, 0, -3, 6.99);
    ck_assert(grid.scale == 1 && grid.min == 0);
    calm_grid_encode(&fp4, grid, w, 5, codes);
    calm_grid_decode(&fp4, grid, codes, 5, back);
    static const float expected[] = {-3, 0, 1.5f, 6, 6};
    for (size_t i = 0; i < 5; i++)
        ck_assert(back[i] == expected[i]);
    double lo, hi;
    calm_grid_span(&affine, w + 3, 2, &lo, &hi);
    ck_assert(lo == 6 && hi == 7);
    grid = calm_grid_between(&affine, 0, 5, 20);
    ck_assert(grid.scale == 1 && grid.min == 5 && grid.zero == 0);
    calm_grid_encode(&affine, grid, w, 5, codes);
    ck_assert(codes[0] == 0 && codes[3] == 1 && codes[4] == 2);
    calm_grid_decode(&affine, grid, codes, 5, back);
    ck_assert(back[3] == 6 && back[4] == 7);
    grid = calm_grid_between(&table, 0, -127, 113);
    ck_assert(grid.scale == 1);
    ck_assert(calm_scale_mirrors(&table) && !calm_scale_mirrors(&fp4) && !calm_scale_mirrors(&affine));
}
END_OF_TEST

static bool same_float(float a, float b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* Scales and grids found together are those found one at a time: in every family, for more than a piece, with scales
 * below the least, above the largest, negative and NaN. */
TEST(together_as_alone)
{
    static const char *const names[] = {"w4a16_g128", "w4a16_g32_asym", "q4_1", "q3_k", "q6_k", "q4_k", "iq4_nl",
                                        "iq4_xs", "mxfp4a16", "nvfp4a16"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        const calm_scheme scheme = scheme_of(names[k]);
        const float global = calm_scale_global(&scheme, 3);
        double scale[101] = {0, -1, 1e300, -1e300, NAN, -1e-30}, p[101];
        float rounded[101];
        calm_grid grid[101];
        for (size_t i = 6; i < 101; i++)
            scale[i] = exp2(-40 + 60 * calm_rng_uniform(8, k, i)) * (i % 2 ? 1 : -1);
        for (size_t i = 0; i < 101; i++)
            p[i] = 1.2 - 0.01 * (double)i;
        calm_scale_round_all(&scheme, global, 101, scale, rounded);
        calm_grid_between_all(&scheme, global, -0.7, 0.4, p, 101, grid);
        for (size_t i = 0; i < 101; i++) {
            const calm_grid alone = calm_grid_between(&scheme, global, p[i] * -0.7, p[i] * 0.4);
            ck_assert(same_float(rounded[i], calm_scale_round(&scheme, global, scale[i])));
            ck_assert(grid[i].scale == alone.scale && grid[i].zero == alone.zero && grid[i].min == alone.min);
        }
        ck_assert(isnan(rounded[4]));
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("levels", (const TTest *[]){
        bits_are_those_of_the_format, levels_rise_and_have_codes, nearest, powers_of_two,
        multiples_of_a_global_number, grids, together_as_alone, NULL});
}
