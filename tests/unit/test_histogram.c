/* ptq/calib/histogram.c: the table of edges against powers of ten in long double, every edge and its neighbours. */
#include "tests/support/harness.h"

#include "ptq/base/rng_impl.h"
#include "ptq/calib/histogram.h"

static float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t to_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Returns the bin of a value; CALM_ACT_BINS for a zero. */
static size_t bin_of(float x)
{
    calm_histogram histogram = {0};
    size_t found = SIZE_MAX;
    calm_histogram_add(&histogram, &x, 1);
    for (size_t k = 0; k <= CALM_ACT_BINS; k++)
        for (int half = 0; half < 2; half++)
            if (histogram.count[half][k] > 0) {
                ck_assert(found == SIZE_MAX && histogram.count[half][k] == 1);
                found = k;
            }
    return found;
}

/* Returns 10^(k/32 - 8) to 64 bits.  No float is within 2^-60 of an edge but powers of ten from 1 on, which powl
 * gives exactly. */
static long double edge(size_t k)
{
    return k >= 256 && k % 32 == 0 ? powl(10, (long double)(k / 32 - 8)) : powl(10, (long double)k / 32 - 8);
}

TEST(every_edge_lies_where_its_power_of_ten_lies)
{
    for (size_t k = 1; k < CALM_ACT_BINS; k++) {
        uint32_t bits = to_bits((float)edge(k));
        for (uint32_t b = bits - 2; b <= bits + 2; b++) {
            size_t expected = (long double)from_bits(b) >= edge(k) ? k : k - 1;
            ck_assert_msg(bin_of(from_bits(b)) == expected, "edge %zu: %a is in bin %zu, expected %zu", k,
                          (double)from_bits(b), bin_of(from_bits(b)), expected);
            ck_assert_uint_eq(bin_of(-from_bits(b)), expected);
        }
    }
}
END_OF_TEST

/* Floats of all magnitudes, more than one block at once, against the logarithm; near an edge either bin passes,
 * since the test above decides there. */
TEST(bins_follow_the_logarithm)
{
    enum { N = 20001 };
    float *x;
    calm_histogram histogram = {0};
    uint64_t expected[CALM_ACT_BINS + 1] = {0};
    ck_ok(CALM_NEW(ctx, ctx->out, x, N));
    for (size_t i = 0; i < N; i++) {
        double position;
        uint64_t draw = 0;
        do {
            x[i] = from_bits((uint32_t)calm_rng_u64(3, 1 + draw++, i) % 0x7f800000);
            position = (log10((double)x[i]) + 8) * 32;
        } while (x[i] > 0 && fabs(position - nearbyint(position)) < 1e-9);
        if (i % 100 == 0)
            x[i] = i % 200 ? 0.0f : -0.0f;
        expected[x[i] == 0 ? CALM_ACT_BINS : (size_t)fmin(fmax(floor(position), 0), CALM_ACT_BINS - 1)]++;
    }
    calm_histogram_add(&histogram, x, N);
    for (size_t k = 0; k <= CALM_ACT_BINS; k++)
        ck_assert_uint_eq(histogram.count[0][k] + histogram.count[1][k], expected[k]);
}
END_OF_TEST

TEST(the_ends_hold_what_lies_beyond)
{
    ck_assert_uint_eq(bin_of(0), CALM_ACT_BINS);
    ck_assert_uint_eq(bin_of(-0.0f), CALM_ACT_BINS);
    ck_assert_uint_eq(bin_of(from_bits(1)), 0);
    ck_assert_uint_eq(bin_of(1e-9f), 0);
    ck_assert_uint_eq(bin_of(1), 256);
    ck_assert_uint_eq(bin_of(1e8f), CALM_ACT_BINS - 1);
    ck_assert_uint_eq(bin_of(from_bits(0x7f7fffff)), CALM_ACT_BINS - 1);
}
END_OF_TEST

TEST(quantiles_interpolate_within_the_bin)
{
    uint64_t histogram[CALM_ACT_BINS] = {0};
    ck_assert(calm_actstat_quantile(histogram, 0.5) == 0);
    histogram[256] = 4;
    ck_near(calm_actstat_quantile(histogram, 0.5), pow(10, 0.5 / 32), 1e-15);
    histogram[288] = 4;
    ck_near(calm_actstat_quantile(histogram, 0.5), pow(10, 1.0 / 32), 1e-15);
    ck_near(calm_actstat_quantile(histogram, 0.75), pow(10, 1 + 0.5 / 32), 1e-14);
    ck_near(calm_actstat_quantile(histogram, 0.999), pow(10, 1 + 0.998 / 32), 1e-12);
}
END_OF_TEST

int main(void)
{
    return run_tests("histogram", (const TTest *[]){every_edge_lies_where_its_power_of_ten_lies,
                                                    bins_follow_the_logarithm, the_ends_hold_what_lies_beyond,
                                                    quantiles_interpolate_within_the_bin, NULL});
}
