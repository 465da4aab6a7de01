/* Super-blocks: scales and minima that are rounded together can be stored, stay unchanged when rounded again, and
 * are split into the numbers of the file. */
#include "ptq/quant/super_block.h"

#include <math.h>

#include "ptq/base/rng_impl.h"
#include "ptq/io/ggml_type.h"
#include "ptq/quant/grid.h"
#include "tests/support/harness.h"

#define MOST_GROUPS 16

/* Loops over the rows of schemes.def with super-blocks. */
#define EACH(k) for (int k = 0; k < CALM_N_FAMILIES; k++) if (calm_families[k].super > 1)

/* Ranges of the codes of scales. */
static const struct {
    int least, most;
} codes[] = {[CALM_SCALE_U4] = {0, 15}, [CALM_SCALE_U6] = {0, 63}, [CALM_SCALE_S6] = {-32, 31},
             [CALM_SCALE_S8] = {-128, 127}};

static int least(int k)
{
    return codes[calm_families[k].scale].least;
}

static int most(int k)
{
    return codes[calm_families[k].scale].most;
}

static calm_scheme scheme_of(int k)
{
    calm_scheme scheme;
    ck_ok(calm_scheme_parse(ctx, calm_families[k].name, &scheme));
    ck_assert(calm_scheme_is_super_block(&scheme));
    return scheme;
}

/* Draws scales of some super-block of type k: of either sign if the type has both, over `decades` of magnitude. */
static size_t draw(int k, uint64_t seed, double decades, float *scales, float *mins)
{
    const calm_scheme scheme = scheme_of(k);
    const size_t n = calm_scheme_family(&scheme)->super;
    ck_assert_uint_le(n, MOST_GROUPS);
    for (size_t g = 0; g < n; g++) {
        const double size = 1e-2 * pow(10, -decades * calm_rng_uniform(seed, 1, g));
        scales[g] = (float)(least(k) < 0 && calm_rng_uniform(seed, 2, g) < 0.5 ? -size : size);
        mins[g] = calm_scheme_has_mins(&scheme) ? -(float)(size * 7 * calm_rng_uniform(seed, 3, g)) : 0;
    }
    return n;
}

TEST(rounded_together)
{
    EACH(k)
        for (uint64_t seed = 0; seed < 40; seed++) {
            float scales[MOST_GROUPS], mins[MOST_GROUPS], again[MOST_GROUPS], again_mins[MOST_GROUPS];
            const calm_scheme scheme = scheme_of(k);
            float *const of = calm_scheme_has_mins(&scheme) ? mins : NULL;
            const size_t n = draw(k, seed, (double)(seed % 4), scales, mins);
            float wanted[MOST_GROUPS];
            memcpy(wanted, scales, sizeof wanted);
            calm_super_block block;
            calm_scales_round(&scheme, 0, n, scales, of);
            memcpy(again, scales, sizeof again);
            memcpy(again_mins, mins, sizeof again_mins);
            calm_scales_round(&scheme, 0, n, again, of ? again_mins : NULL);
            ck_assert_msg(memcmp(again, scales, n * sizeof *scales) == 0, "%s", calm_families[k].name);
            ck_assert(memcmp(again_mins, mins, n * sizeof *mins) == 0);
            ck_assert(calm_super_split(&scheme, n, scales, of, &block));
            const float d = calm_f16_to_f32(block.d), dmin = calm_f16_to_f32(block.dmin);
            for (size_t g = 0; g < n; g++) {
                ck_assert(block.scales[g] >= least(k) && block.scales[g] <= most(k) && block.scales[g] != 0);
                ck_assert(d * (float)block.scales[g] == scales[g]);
                ck_assert(!of || (block.minima[g] >= 0 && block.minima[g] <= most(k)));
                ck_assert(-(dmin * (float)block.minima[g]) == mins[g]);
                /* The step is at most the largest scale over the largest code of its sign; the error is half a step,
                 * and a whole one for a code that may not be 0. */
                const double step = fabs((double)scales[0]) > 0 ? fabs((double)d) : 0;
                ck_assert(fabs((double)scales[g] - (double)wanted[g]) <= step * 1.001);
            }
        }
}
END_OF_TEST

/* All groups equal, all zero, a single one: the nearest float16. */
TEST(simple_ones)
{
    EACH(k) {
        const calm_scheme scheme = scheme_of(k);
        float same[8], zero[8] = {0}, one = 0.5f;
        calm_super_block block;
        for (size_t g = 0; g < 8; g++)
            same[g] = 0.25f;
        calm_scales_round(&scheme, 0, 8, same, NULL);
        calm_scales_round(&scheme, 0, 1, &one, NULL);
        ck_assert(one == 0.5f);
        for (size_t g = 0; g < 8; g++) {
            ck_assert(same[g] == 0.25f);
            zero[g] = calm_scale_round(&scheme, 0, 0);
        }
        calm_scales_round(&scheme, 0, 8, zero, NULL);    /* a row of zeros: no scale is 0, none is large */
        ck_assert(calm_super_split(&scheme, 8, zero, NULL, &block));
        ck_assert(zero[0] != 0 && fabsf(zero[0]) <= 0x1p-17f);
    }
}
END_OF_TEST

TEST(out_of_range)
{
    EACH(k) {
        const calm_scheme scheme = scheme_of(k);
        float scales[2] = {1, INFINITY}, odd[2] = {1, 0.3f};
        calm_super_block block;
        ck_assert(isinf(calm_scale_round(&scheme, 0, 1e6)));
        ck_assert(isnan(calm_scale_round(&scheme, 0, NAN)));
        calm_scales_round(&scheme, 0, 2, scales, NULL);
        ck_assert(isinf(scales[1]));
        ck_assert(!calm_super_split(&scheme, 2, odd, NULL, &block));
        ck_assert(least(k) < 0 ? calm_scale_round(&scheme, 0, -1) == -1 : calm_scale_round(&scheme, 0, -1) > 0);
        ck_assert(!calm_scheme_has_mins(&scheme) || calm_min_round(&scheme, 3) == 0);
        ck_assert(!calm_scheme_has_mins(&scheme) || isinf(calm_min_round(&scheme, -1e6)));
    }
}
END_OF_TEST

/* The scheme that replaces one whose blocks do not divide the columns. */
TEST(fall_back)
{
    char name[CALM_SCHEME_NAME_MAX];
    EACH(k) {
        const calm_scheme scheme = scheme_of(k), whole = calm_scheme_for(&scheme, 512),
                          other = calm_scheme_for(&scheme, 640);
        calm_scheme_name(&whole, name);
        ck_assert_str_eq(name, calm_families[k].name);
        const calm_scheme instead = calm_scheme_of_type(calm_families[k].instead);
        ck_assert(calm_families[k].instead && calm_scheme_same(&other, &instead));
        ck_assert_uint_eq(calm_scheme_block(&other), 32);    /* as llama.cpp's tools do for all rows */
        ck_assert_uint_eq(calm_scheme_groups(&scheme, 640), 20);
        ck_assert(calm_scheme_bits_per_weight(&scheme, 8, 640) == calm_scheme_bits_per_weight(&other, 8, 640));
    }
}
END_OF_TEST

/* Bits per weight of ggml's blocks. */
TEST(sizes)
{
    EACH(k) {
        const calm_scheme scheme = scheme_of(k);
        const calm_ggml_info *info = calm_ggml_find(calm_families[k].ggml);
        const double bits = 8 * (double)info->bytes / (double)info->elements;
        ck_assert(calm_scheme_bits_per_weight(&scheme, 16, 512) == bits);
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("super_block", (const TTest *[]){rounded_together, simple_ones, out_of_range, fall_back, sizes,
                                                      NULL});
}
