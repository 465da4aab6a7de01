/* Random numbers: Philox4x32-10 against the known answers of Random123 (kat_vectors), and the numbers drawn from it. */
#include "ptq/base/rng_impl.h"

#include "tests/support/harness.h"

TEST(philox_gives_the_known_answers)
{
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } rows[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint32_t out[4];
        calm_philox4x32(rows[i].counter, rows[i].key, out);
        ck_assert_mem_eq(out, rows[i].out, sizeof out);
    }
}
END_OF_TEST

TEST(u64_is_the_low_half_of_the_block)
{
    ck_assert_uint_eq(calm_rng_u64(0, 0, 0), 0xe169c58d6627e8d5u);
    /* index = counter words 0 and 1, stream = 2 and 3, seed = key */
    ck_assert_uint_eq(calm_rng_u64(0x299f31d0a4093822u, 0x0370734413198a2eu, 0x85a308d3243f6a88u), 0x94fdccebd16cfe09u);
}
END_OF_TEST

/* A mean of n uniforms has the standard deviation sqrt(1/12 / n); a fixed draw of a sound generator stays within 5
 * of them. */
TEST(uniform_fills_the_unit_interval)
{
    const int n = 100000;
    double sum = 0, least = 1, most = 0;
    for (int i = 0; i < n; i++) {
        double u = calm_rng_uniform(7, 1, (uint64_t)i);
        ck_assert(u >= 0 && u < 1);
        sum += u;
        least = fmin(least, u);
        most = fmax(most, u);
    }
    ck_near(sum / n, 0.5, 5 * sqrt(1.0 / 12 / n));
    ck_assert_double_lt(least, 20.0 / n);
    ck_assert_double_gt(most, 1 - 20.0 / n);
}
END_OF_TEST

/* Standard deviations of the sample moments of a normal: mean 1, square sqrt 2, third sqrt 15, fourth sqrt 96. */
TEST(normal_has_the_moments_of_a_normal)
{
    const int n = 100000;
    double moments[5] = {0};
    for (int i = 0; i < n; i++) {
        double x = calm_rng_normal(7, 2, (uint64_t)i), power = 1;
        ck_assert(isfinite(x));
        for (int k = 1; k < 5; k++)
            moments[k] += power *= x;
    }
    ck_near(moments[1] / n, 0, 5 * sqrt(1.0 / n));
    ck_near(moments[2] / n, 1, 5 * sqrt(2.0 / n));
    ck_near(moments[3] / n, 0, 5 * sqrt(15.0 / n));
    ck_near(moments[4] / n, 3, 5 * sqrt(96.0 / n));
}
END_OF_TEST

TEST(choose_draws_different_numbers)
{
    static const struct {
        size_t n, k;
    } rows[] = {{1, 1}, {5, 0}, {5, 5}, {100, 37}, {1000, 1000}, {(size_t)1 << 32, 100}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        static size_t out[1000];
        ck_assert(calm_rng_choose(3, r, rows[r].n, rows[r].k, out));
        for (size_t i = 0; i < rows[r].k; i++) {
            ck_assert_uint_lt(out[i], rows[r].n);
            for (size_t j = 0; j < i; j++)
                ck_assert_uint_ne(out[i], out[j]);
        }
    }
}
END_OF_TEST

/* Shuffles with the whole array, drawing the same numbers. */
static void choose_slowly(uint64_t seed, uint64_t stream, size_t n, size_t k, size_t *out)
{
    size_t *all = malloc(n * sizeof *all);
    for (size_t i = 0; i < n; i++)
        all[i] = i;
    for (size_t i = 0; i < k; i++) {
        __uint128_t wide = (__uint128_t)calm_rng_u64(seed, stream, i) * (n - i);
        size_t place = i + (size_t)(wide >> 64), taken = all[place];
        all[place] = all[i];
        all[i] = out[i] = taken;
    }
    free(all);
}

TEST(choose_is_fisher_and_yates)
{
    size_t fast[500], slow[500];
    for (size_t n = 1; n <= 500; n += 7) {
        size_t k = n - n / 3;
        ck_assert(calm_rng_choose(11, n, n, k, fast));
        choose_slowly(11, n, n, k, slow);
        ck_assert_mem_eq(fast, slow, k * sizeof *fast);
    }
}
END_OF_TEST

TEST(streams_and_seeds_differ_and_repeat)
{
    ck_assert_uint_ne(calm_rng_u64(1, 0, 0), calm_rng_u64(2, 0, 0));
    ck_assert_uint_ne(calm_rng_u64(1, 0, 0), calm_rng_u64(1, 1, 0));
    ck_assert_uint_ne(calm_rng_u64(1, 0, 0), calm_rng_u64(1, 0, 1));
    ck_assert_uint_ne(calm_rng_u64(1, 0, 0), calm_rng_u64(1, 0, (uint64_t)1 << 32));
    ck_assert_uint_eq(calm_rng_u64(1, 2, 3), calm_rng_u64(1, 2, 3));
}
END_OF_TEST

int main(void)
{
    return run_tests("rng",
                     (const TTest *[]){philox_gives_the_known_answers, u64_is_the_low_half_of_the_block,
                                       uniform_fills_the_unit_interval, normal_has_the_moments_of_a_normal,
                                       choose_draws_different_numbers, choose_is_fisher_and_yates,
                                       streams_and_seeds_differ_and_repeat, NULL});
}
