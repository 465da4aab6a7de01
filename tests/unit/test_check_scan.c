/* Scans of calm check against plain loops: every 16-bit pattern, every byte, lengths around the scans' blocks. */
#include "ptq/check/check_scan.h"

#include "tests/support/harness.h"

static bool is_finite(calm_dtype dtype, uint16_t bits)
{
    return isfinite(dtype == CALM_F16 ? calm_f16_to_f32(bits) : calm_bf16_to_f32(bits));
}

TEST(nonfinite_halves)
{
    static const calm_dtype dtypes[] = {CALM_F16, CALM_BF16};
    static uint16_t all[65536 + 1];
    for (size_t i = 0; i <= 65536; i++)
        all[i] = (uint16_t)i;
    for (int d = 0; d < 2; d++)
        for (size_t n = 0; n <= 65536; n += n < 4100 ? 1 : 4093) {
            size_t expected = 0;
            for (size_t i = 65536 - n; i < 65536; i++)
                expected += !is_finite(dtypes[d], all[i]);
            ck_assert_uint_eq(calm_scan_nonfinite(dtypes[d], (const uint8_t *)(all + 65536 - n), n), expected);
        }
}
END_OF_TEST

TEST(nonfinite_wide)
{
    const float words[] = {0, -1, INFINITY, NAN, -INFINITY, 3.4e38f, 1e-45f};
    const double doubles[] = {0, INFINITY, -NAN, 1e308, 5e-324};
    ck_assert_uint_eq(calm_scan_nonfinite(CALM_F32, (const uint8_t *)words, 7), 3);
    ck_assert_uint_eq(calm_scan_nonfinite(CALM_F64, (const uint8_t *)doubles, 5), 2);
    ck_assert_uint_eq(calm_scan_nonfinite(CALM_I32, (const uint8_t *)words, 7), 0);
}
END_OF_TEST

/* Computes the faults of a value arithmetically. */
static unsigned expected_faults(calm_dtype dtype, float value)
{
    unsigned out = 0;
    out |= (unsigned)!isfinite(value) << CALM_SCALE_NONFINITE;
    out |= (unsigned)(value == 0 && !signbit(value)) << CALM_SCALE_ZERO;
    out |= (unsigned)(value == 0 && signbit(value)) << CALM_SCALE_MINUS_ZERO;
    out |= (unsigned)(value != 0 && fabsf(value) < 0x1p-17f) << CALM_SCALE_TINY;
    out |= (unsigned)(isfinite(value) && fabsf(value) > 65504.0f) << CALM_SCALE_HUGE;
    if (dtype == CALM_F16 && isfinite(value))
        out |= (unsigned)(calm_bf16_to_f32(calm_f32_to_bf16(value)) != value) << CALM_SCALE_ROUNDED;
    return out;
}

TEST(scales)
{
    static const calm_dtype dtypes[] = {CALM_F16, CALM_BF16};
    for (int d = 0; d < 2; d++) {
        size_t sums[CALM_N_SCALE_FAULTS] = {0}, counts[CALM_N_SCALE_FAULTS] = {0};
        static uint16_t all[65536];
        for (size_t i = 0; i < 65536; i++) {
            all[i] = (uint16_t)i;
            const float value = d ? calm_bf16_to_f32(all[i]) : calm_f16_to_f32(all[i]);
            const unsigned expected = expected_faults(dtypes[d], value);
            size_t found[CALM_N_SCALE_FAULTS] = {0};
            calm_scan_scales(dtypes[d], (const uint8_t *)&all[i], 1, found);
            for (int f = 0; f < CALM_N_SCALE_FAULTS; f++) {
                ck_assert_msg(found[f] == (expected >> f & 1), "%04zx: expected %x", i, expected);
                sums[f] += expected >> f & 1;
            }
        }
        calm_scan_scales(dtypes[d], (const uint8_t *)all, 65536, counts);
        ck_assert_mem_eq(counts, sums, sizeof sums);
    }
}
END_OF_TEST

TEST(ranges)
{
    uint8_t all[256 * 3];
    for (int i = 0; i < 256 * 3; i++)
        all[i] = (uint8_t)i;
    for (int bits = 2; bits <= 7; bits++)
        for (size_t n = 0; n <= sizeof all; n++) {
            const int limit = 1 << (bits - 1);
            size_t expected = 0;
            for (size_t i = 0; i < n; i++)
                expected += (int8_t)all[i] < -limit || (int8_t)all[i] >= limit;
            ck_assert_uint_eq(calm_scan_range(all, n, limit), expected);
        }
}
END_OF_TEST

TEST(holes)
{
    static uint8_t bytes[4096 * 4 + 100];
    ck_assert_uint_eq(calm_scan_holes(bytes, sizeof bytes), 4);
    ck_assert_uint_eq(calm_scan_holes(bytes, 4095), 0);
    bytes[4096] = 1;
    bytes[4096 * 3 - 1] = 1;
    ck_assert_uint_eq(calm_scan_holes(bytes, sizeof bytes), 2);
}
END_OF_TEST

int main(void)
{
    return run_tests("check_scan", (const TTest *[]){nonfinite_halves, nonfinite_wide, scales, ranges, holes, NULL});
}
