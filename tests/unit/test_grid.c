/* Grids: the rounding of scales and their range, codes, dequantization, quantized activations. */
#include "ptq/quant/grid.h"
#include "ptq/base/rng.h"
#include "tests/support/harness.h"

static calm_scheme scheme_of(const char *name)
{
    calm_scheme scheme;
    ck_ok(calm_scheme_parse(ctx, name, &scheme));
    return scheme;
}

static float round_bf16(double scale)
{
    return calm_scale_round(&(calm_scheme){.bits = 4, .scale_dtype = CALM_BF16}, 0, scale);
}

static float round_f16(double scale)
{
    return calm_scale_round(&(calm_scheme){.bits = 4, .scale_dtype = CALM_F16}, 0, scale);
}

TEST(scales_are_exact_in_both_halves)
{
    for (size_t i = 0; i < 4000; i++) {
        double s = exp2(-20 + 36 * calm_rng_uniform(1, 0, i)) * (i % 2 ? 1 : -1);
        float bf16 = round_bf16(s), f16 = round_f16(s);
        ck_assert(fabsf(bf16) <= 65280);
        ck_assert(calm_bf16_to_f32(calm_f32_to_bf16(bf16)) == bf16);
        ck_assert(calm_f16_to_f32(calm_f32_to_f16(bf16)) == bf16 || fabsf(bf16) < 0x1p-17f);
        ck_assert(calm_f16_to_f32(calm_f32_to_f16(f16)) == f16);
        ck_assert((bf16 < 0) == (s < 0));
        ck_assert(fabs(bf16 - s) <= fabs(s) * 0x1p-8);
        if (fabs(s) <= 65280)
            ck_assert(fabs(f16 - s) <= fmax(fabs(s) * 0x1p-11, 0x1p-25));
    }
}
END_OF_TEST

TEST(scale_range)
{
    ck_assert(round_bf16(0) == 0x1p-17f);
    ck_assert(round_bf16(-0x1p-30) == -0x1p-30f);
    ck_assert(round_bf16(0x1p-126) == 0x1p-126f);
    ck_assert(round_bf16(-0x1p-140) == -0x1p-126f);
    ck_assert(round_f16(0) == 0x1p-17f);
    ck_assert(round_f16(0x1p-24) == 0x1p-24f);
    ck_assert(round_f16(-0x1p-40) == -0x1p-24f);
    ck_assert(round_bf16(65280) == 65280);
    ck_assert(isinf(round_bf16(65500)));
    ck_assert(isinf(round_f16(65500)));
    ck_assert(isinf(round_bf16(1e300)));
    ck_assert(isnan(round_bf16(NAN)));
    /* 1.01171875 is between the bfloat16 values 1.0078125 and 1.015625: a tie, to even. */
    ck_assert(round_bf16(1.01171875) == 1.015625f);
}
END_OF_TEST

TEST(symmetric_codes)
{
    calm_scheme scheme = scheme_of("w4a16_g8");
    const double w[] = {-7.5, -8.5, -0.5, 0.5, 1.5, 2.5, 7.4, 100};
    const uint8_t expected[] = {0, 0, 8, 8, 10, 10, 15, 15};
    uint8_t codes[8];
    float back[8];
    calm_grid_encode(&scheme, (calm_grid){.scale = 1, .zero = 8}, w, 8, codes);
    ck_assert_mem_eq(codes, expected, sizeof codes);
    calm_grid_decode(&scheme, (calm_grid){.scale = 0.5f, .zero = 8}, codes, 8, back);
    for (size_t i = 0; i < 8; i++)
        ck_assert(back[i] == 0.5f * (float)(expected[i] - 8));
    /* A negative scale mirrors the grid: the extra code is on the positive side. */
    calm_grid_encode(&scheme, (calm_grid){.scale = -1, .zero = 8}, w, 8, codes);
    ck_assert_uint_eq(codes[7], 0);
    ck_assert_uint_eq(codes[1], 15);
}
END_OF_TEST

TEST(eight_bits_leave_out_code_zero)
{
    calm_scheme sym = scheme_of("w8a8"), asym = scheme_of("w8a16_asym");
    const double w[] = {-1000, 1000};
    uint8_t codes[2];
    calm_grid_encode(&sym, (calm_grid){.scale = 1, .zero = 128}, w, 2, codes);
    ck_assert_uint_eq(codes[0], 1);
    ck_assert_uint_eq(codes[1], 255);
    calm_grid_encode(&asym, (calm_grid){.scale = 1, .zero = 0}, w, 2, codes);
    ck_assert_uint_eq(codes[0], 0);
}
END_OF_TEST

TEST(grid_between)
{
    calm_scheme sym = scheme_of("w4a16"), asym = scheme_of("w4a16_asym");
    calm_grid grid = calm_grid_between(&sym, 0, -3, 7.5);
    ck_assert(grid.scale == 1 && grid.zero == 8);
    grid = calm_grid_between(&asym, 0, -5, 10);
    ck_assert(grid.scale == 1 && grid.zero == 5);
    grid = calm_grid_between(&asym, 0, -15, 0);
    ck_assert(grid.scale == 1 && grid.zero == 15);
    /* 255.9 / 255 rounds to 1, and the zero point is computed with that: 200, not round(200 * 255 / 255.9) = 199. */
    calm_scheme byte = scheme_of("w8a16_asym");
    grid = calm_grid_between(&byte, 0, -200, 55.9);
    ck_assert(grid.scale == 1 && grid.zero == 200);
    grid = calm_grid_between(&asym, 0, 0, 0);
    ck_assert(grid.scale == 0x1p-17f && grid.zero == 0);
    grid = calm_grid_between(&sym, 0, 0, 0);
    ck_assert(grid.scale == 0x1p-17f && grid.zero == 8);
    ck_assert(isinf(calm_grid_between(&sym, 0, 0, 1e9).scale));
    ck_assert(isinf(calm_grid_between(&asym, 0, 0, 1e9).scale));
}
END_OF_TEST

TEST(span_includes_zero)
{
    const calm_scheme scheme = scheme_of("w4a16_g128");
    double lo, hi;
    calm_grid_span(&scheme, (const double[]){2, 3}, 2, &lo, &hi);
    ck_assert(lo == 0 && hi == 3);
    calm_grid_span(&scheme, (const double[]){-2, -3}, 2, &lo, &hi);
    ck_assert(lo == -3 && hi == 0);
}
END_OF_TEST

/* The span is that of a loop over the weights, for any place in vectors and the rest; of zeros of both signs the
 * first. */
TEST(span_finds_every_weight)
{
    const calm_scheme plain = scheme_of("w4a16_g128"), affine = scheme_of("q4_1");
    for (size_t n = 1; n < 40; n++)
        for (size_t at = 0; at < n; at++) {
            double w[40], lo, hi;
            for (size_t j = 0; j < n; j++)
                w[j] = 2;
            w[at] = 5;
            calm_grid_span(&affine, w, n, &lo, &hi);
            ck_assert(lo == (n > 1 ? 2 : 5) && hi == 5);
            w[at] = -1;
            calm_grid_span(&plain, w, n, &lo, &hi);
            ck_assert(lo == -1 && hi == (n > 1 ? 2 : 0));
            w[at] = -0.0;
            w[(at + 17) % n] = n > 1 && (at + 17) % n != at ? 0 : w[(at + 17) % n];
            calm_grid_span(&affine, w, n, &lo, &hi);
            const size_t other = (at + 17) % n;
            ck_assert(lo == 0 && !signbit(lo) == (other < at));
        }
}
END_OF_TEST

/* The rule of compressed-tensors in a plain loop, in its float32 arithmetic. */
static void asymmetric_reference(const float *x, size_t d, int bits, float *y)
{
    float least = 0, most = 0, lo = -(float)(1 << (bits - 1)), hi = -lo - 1;
    for (size_t j = 0; j < d; j++) {
        least = fminf(least, x[j]);
        most = fmaxf(most, x[j]);
    }
    const float scale = (most - least) / (hi - lo);
    const float zero = rintf(fminf(fmaxf(lo - least / scale, lo), hi));
    for (size_t j = 0; j < d; j++)
        y[j] = least == most ? 0 : (rintf(fminf(fmaxf(x[j] / scale + zero, lo), hi)) - zero) * scale;
}

static void act_reference(const float *x, size_t d, int bits, bool asymmetric, float *y)
{
    float most = 0, half = (float)(1 << (bits - 1));
    if (asymmetric) {
        asymmetric_reference(x, d, bits, y);
        return;
    }
    for (size_t j = 0; j < d; j++)
        most = fmaxf(most, fabsf(x[j]));
    float scale = most / (half - 0.5f);
    for (size_t j = 0; j < d; j++)
        y[j] = most == 0 ? 0 : fminf(fmaxf(rintf(x[j] / scale), -half), half - 1) * scale;
}

/* Compares by value: the sign of zero does not matter. */
static void check_same(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(a[i] == b[i], "[%zu]: %.9g, expected %.9g", i, a[i], b[i]);
}

TEST(activations_per_token)
{
    enum { N = 7, D = 37 };
    float x[N * D], y[N * D], expected[N * D];
    for (size_t i = 0; i < N * D; i++)
        x[i] = (float)calm_rng_normal(3, 0, i) * (i / D == 2 ? 1e4f : 1) + (i / D == 5 ? 9 : i / D == 6 ? -9 : 0);
    memset(x + 4 * D, 0, D * sizeof *x);
    for (int asymmetric = 0; asymmetric < 2; asymmetric++) {
        for (int bits = 2; bits <= 8; bits += 2) {
            calm_actquant_rows(x, N, D, bits, asymmetric, CALM_ACT_RULE_COMPRESSED_TENSORS, 0, y);
            for (size_t t = 0; t < N; t++)
                act_reference(x + t * D, D, bits, asymmetric, expected + t * D);
            check_same(y, expected, N * D);
        }
        memcpy(y, x, sizeof y);
        calm_actquant_rows(y, N, D, 8, asymmetric, CALM_ACT_RULE_COMPRESSED_TENSORS, 0, y);
        check_same(y, expected, N * D);
    }
}
END_OF_TEST

/* By hand, with scales that are powers of two.  First row: lo -1, hi 14, 15 steps of 4 bits: s = 1, z = -8 + 1 = -7.
 * 2.5 is at -4.5, which rounds to the even -4 and gives 3; 3.5 at -3.5 gives 3 too, since ties are of codes.  Second
 * row: all above zero, so the range begins at zero: s = 0.5, z = -8; 0.7 at -8 + 1.4 = -6.6 -> -7 -> 0.5.  Third
 * row: all below: lo -30, s = 2, z = -8 + 15 = 7; -1 at 6.5 -> 6 -> -2, -3 at 5.5 -> 6 -> -2, -29 at -7.5 -> -8 ->
 * -30. */
TEST(asymmetric_activations_by_hand)
{
    enum { D = 5 };
    const float x[3 * D] = {-1, 14, 2.5f, 3.5f, 0, 7.5f, 0.7f, 1, 7.5f, 0.2f, -30, -1, -3, -0.9f, -29};
    const float expected[3 * D] = {-1, 14, 3, 3, 0, 7.5f, 0.5f, 1, 7.5f, 0, -30, -2, -2, 0, -30};
    float y[3 * D];
    calm_actquant_rows(x, 3, D, 4, true, CALM_ACT_RULE_COMPRESSED_TENSORS, 0, y);
    check_same(y, expected, 3 * D);
}
END_OF_TEST

/* 40 values, so that both the vectors and the rest have the extremes once. */
TEST(asymmetric_range_is_found_everywhere)
{
    enum { D = 40 };
    for (size_t i = 0; i < D; i++) {
        float x[D] = {0}, y[D];
        x[i] = -3;
        x[(i + 17) % D] = 12;
        calm_actquant_rows(x, 1, D, 4, true, CALM_ACT_RULE_COMPRESSED_TENSORS, 0, y);    /* s = 1 */
        check_same(y, x, D);
    }
}
END_OF_TEST

/* vLLM's rule in a plain loop: codes and zero points are whole numbers. */
static void vllm_reference(const float *x, size_t d, int bits, bool asymmetric, float *y)
{
    const long lo = -(1l << (bits - 1)), hi = -lo - 1;
    float least = x[0], most = x[0], magnitude = 0;
    for (size_t j = 0; j < d; j++) {
        least = fminf(least, x[j]);
        most = fmaxf(most, x[j]);
        magnitude = fmaxf(magnitude, fabsf(x[j]));
    }
    const float scale = asymmetric ? (most - least) / (float)(hi - lo) : magnitude / (float)hi;
    const float inverse = asymmetric ? 1 / scale : (float)hi / magnitude;
    const long zero = asymmetric && scale > 0 ? lrintf((float)lo - least / scale) : 0;
    for (size_t j = 0; j < d; j++) {
        const long code = scale > 0 ? lrintf(x[j] * inverse) + zero : 0;
        y[j] = (float)((code < lo ? lo : code > hi ? hi : code) - zero) * scale;
    }
}

/* Rows far from zero too, whose zero points are far outside of the codes. */
TEST(activations_per_token_by_the_rule_of_vllm)
{
    enum { N = 8, D = 37 };
    float x[N * D], y[N * D], expected[N * D], other[N * D];
    for (size_t i = 0; i < N * D; i++)
        x[i] = (float)calm_rng_normal(3, 0, i) * (i / D == 2 ? 1e4f : 1) +
               (i / D == 5 ? 9 : i / D == 6 ? -9 : i / D == 7 ? 3e4f : 0);
    memset(x + 4 * D, 0, D * sizeof *x);
    for (int asymmetric = 0; asymmetric < 2; asymmetric++) {
        for (int bits = 2; bits <= 8; bits += 2) {
            calm_actquant_rows(x, N, D, bits, asymmetric, CALM_ACT_RULE_VLLM, 0, y);
            for (size_t t = 0; t < N; t++)
                vllm_reference(x + t * D, D, bits, asymmetric, expected + t * D);
            check_same(y, expected, N * D);
            calm_actquant_rows(x, N, D, bits, asymmetric, CALM_ACT_RULE_COMPRESSED_TENSORS, 0, other);
            ck_assert(memcmp(y, other, sizeof y) != 0);
        }
        memcpy(y, x, sizeof y);
        calm_actquant_rows(y, N, D, 8, asymmetric, CALM_ACT_RULE_VLLM, 0, y);
        check_same(y, expected, N * D);
    }
}
END_OF_TEST

/* Symmetric, by hand: 7 / 7 = 1, ties to even; then 3.5 / 7 = 0.5.  Asymmetric: s = 15 / 15, z = -8 + 1 = -7, and
 * 2.5 is rounded before z is added: 2, where compressed-tensors gives 3.  A range of 100 to 115 has s = 1 and z =
 * -108, and loses no code to a zero outside of the range; equal values have s = 0. */
TEST(the_rule_of_vllm_by_hand)
{
    enum { D = 5 };
    const float x[2 * D] = {7, -7, 2.5f, 3.5f, -2.5f, 3.5f, 0.25f, 0.75f, -3.5f, 0};
    const float expected[2 * D] = {7, -7, 2, 4, -2, 3.5f, 0, 1, -3.5f, 0};
    const float shifted[3 * D] = {-1, 14, 2.5f, 3.5f, 0, 100, 115, 107.5f, 108.5f, 101, 5, 5, 5, 5, 5};
    const float codes[3 * D] = {-1, 14, 2, 4, 0, 100, 115, 108, 108, 101, 0, 0, 0, 0, 0};
    float y[3 * D];
    calm_actquant_rows(x, 2, D, 4, false, CALM_ACT_RULE_VLLM, 0, y);
    check_same(y, expected, 2 * D);
    calm_actquant_rows(shifted, 3, D, 4, true, CALM_ACT_RULE_VLLM, 0, y);
    check_same(y, codes, 3 * D);
}
END_OF_TEST

static void check_not_finite(calm_act_rule rule)
{
    for (int asymmetric = 0; asymmetric < 2; asymmetric++) {
        float x[] = {1, NAN, 2, 1, INFINITY, 2, 1, -INFINITY, 2, 1, NAN, 1}, y[12];
        calm_actquant_rows(x, 4, 3, 8, asymmetric, rule, 0, y);
        ck_assert(isnan(y[1]));
        ck_assert(isnan(y[4]));
        ck_assert(isnan(y[7]));
        ck_assert(isnan(y[10]));
    }
}

/* x / s beyond the ends is clipped; all rows have the scale of a single one. */
TEST(static_activations_by_hand)
{
    const float x[6] = {0.6f, -0.3f, 1000, -1000, 0.25f, 0}, expected[6] = {0.5f, -0.5f, 63.5f, -64, 0, 0};
    float y[6];
    calm_actquant_rows(x, 2, 3, 8, false, CALM_ACT_RULE_STATIC, 0.5f, y);
    for (size_t i = 0; i < 6; i++)
        ck_assert_msg(y[i] == expected[i], "%zu: %g, expected %g", i, (double)y[i], (double)expected[i]);
    const float bad[4] = {NAN, INFINITY, -INFINITY, 1};
    calm_actquant_rows(bad, 1, 4, 8, false, CALM_ACT_RULE_STATIC, 0.5f, y);
    ck_assert(isnan(y[0]) && isnan(y[1]) && isnan(y[2]) && y[3] == 1);
}
END_OF_TEST

TEST(activations_not_finite)
{
    check_not_finite(CALM_ACT_RULE_COMPRESSED_TENSORS);
    check_not_finite(CALM_ACT_RULE_VLLM);
}
END_OF_TEST

/* The codes are those that the simulation multiplies out, (code - zero) scale, in the same float operations; a row
 * that is not finite has no finite scale. */
TEST(codes_of_activations)
{
    enum { N = 8, D = 45 };
    static const calm_act_rule rules[] = {CALM_ACT_RULE_COMPRESSED_TENSORS, CALM_ACT_RULE_VLLM, CALM_ACT_RULE_STATIC};
    float x[N * D], y[N * D];
    for (size_t i = 0; i < N * D; i++)
        x[i] = (float)calm_rng_normal(5, 0, i) * (i / D == 2 ? 1e4f : 1) + (i / D == 5 ? 9 : i / D == 4 ? -9 : 0);
    memset(x + 3 * D, 0, D * sizeof *x);
    x[6 * D + 7] = NAN;
    x[7 * D + 44] = -INFINITY;
    for (size_t r = 0; r < 3; r++)
        for (int form = 0; form < 14; form++) {
            const int bits = 2 + form / 2;
            const bool asymmetric = form % 2 && rules[r] == CALM_ACT_RULE_COMPRESSED_TENSORS;
            const float global = rules[r] == CALM_ACT_RULE_STATIC ? 0.037f : 0;
            ck_assert(calm_actquant_has_codes(bits, asymmetric, rules[r]));
            calm_actquant_rows(x, N, D, bits, asymmetric, rules[r], global, y);
            for (size_t t = 0; t < N; t++) {
                int8_t codes[D];
                float scale, expected[D];
                int32_t zero;
                calm_actquant_codes(x + t * D, D, bits, asymmetric, rules[r], global, codes, &scale, &zero);
                ck_assert(t < 6 ? isfinite(scale) : !isfinite(scale));
                for (size_t i = 0; i < D; i++)
                    expected[i] = (float)(codes[i] - zero) * scale;
                if (t < 6)
                    check_same(y + t * D, expected, D);
            }
        }
    ck_assert(!calm_actquant_has_codes(8, true, CALM_ACT_RULE_VLLM));
    ck_assert(!calm_actquant_has_codes(8, false, CALM_ACT_RULE_FP8));
}
END_OF_TEST

int main(void)
{
    return run_tests("grid", (const TTest *[]){scales_are_exact_in_both_halves, scale_range, symmetric_codes,
                                               eight_bits_leave_out_code_zero, grid_between, span_includes_zero,
                                       span_finds_every_weight,
                                               activations_per_token,
                                               asymmetric_activations_by_hand,
                                               asymmetric_range_is_found_everywhere,
                                               activations_per_token_by_the_rule_of_vllm, the_rule_of_vllm_by_hand,
                                               static_activations_by_hand, activations_not_finite,
                                               codes_of_activations, NULL});
}
