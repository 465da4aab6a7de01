/* Element types: all 65536 float16 and bfloat16 values in both directions, and every rounding boundary. */
#include "ptq/tensor/dtype.h"

#include <math.h>
#include <string.h>

#include "ptq/base/rng.h"
#include "tests/support/harness.h"

/* A 16-bit format: its exponent bits and mantissa bits. */
typedef struct format {
    int exponent_bits, mantissa_bits;
    float (*widen)(uint16_t);
    uint16_t (*narrow)(float);
} format;

static const format formats[] = {
    {5, 10, calm_f16_to_f32, calm_f32_to_f16},
    {8, 7, calm_bf16_to_f32, calm_f32_to_bf16},
};

static int biased(const format *f, unsigned bits)
{
    return (int)(bits >> f->mantissa_bits) & ((1 << f->exponent_bits) - 1);
}

static unsigned mantissa(const format *f, unsigned bits)
{
    return bits & ((1u << f->mantissa_bits) - 1);
}

static bool is_special(const format *f, unsigned bits)
{
    return biased(f, bits) == (1 << f->exponent_bits) - 1;
}

/* Returns the value by definition; bit patterns above the largest finite value continue the scale. */
static double value_of(const format *f, unsigned bits)
{
    int exponent = biased(f, bits), bias = (1 << (f->exponent_bits - 1)) - 1;
    double fraction = ldexp(mantissa(f, bits), -f->mantissa_bits);
    double magnitude = exponent ? ldexp(1 + fraction, exponent - bias) : ldexp(fraction, 1 - bias);
    return bits >> 15 ? -magnitude : magnitude;
}

TEST(widening_is_exact_and_narrowing_undoes_it)
{
    for (size_t k = 0; k < 2; k++) {
        const format *f = &formats[k];
        for (unsigned bits = 0; bits < 65536; bits++) {
            float wide = f->widen((uint16_t)bits);
            if (is_special(f, bits) && mantissa(f, bits)) {
                ck_assert(isnan(wide));
                uint16_t back = f->narrow(wide);
                ck_assert(is_special(f, back) && mantissa(f, back));
                ck_assert_uint_eq(back >> 15, bits >> 15);
                continue;
            }
            if (is_special(f, bits))
                ck_assert(isinf(wide));
            else
                ck_assert_double_eq(wide, value_of(f, bits));
            ck_assert_int_eq(signbit(wide) != 0, (int)(bits >> 15));
            ck_assert_uint_eq(f->narrow(wide), bits);
        }
    }
}
END_OF_TEST

/* Between neighbours a value rounds down below the middle, up above it, and to even in the middle.  Infinity is the
 * next value of the scale after the largest finite one. */
TEST(narrowing_rounds_to_nearest_even_at_every_boundary)
{
    for (size_t k = 0; k < 2; k++) {
        const format *f = &formats[k];
        unsigned infinity = ((1u << f->exponent_bits) - 1) << f->mantissa_bits;
        for (unsigned sign = 0; sign <= 0x8000; sign += 0x8000)
            for (unsigned bits = 0; bits < infinity; bits++) {
                double low = value_of(f, bits), high = value_of(f, bits + 1);
                float middle = (float)((low + high) / 2), direction = sign ? -1.0f : 1.0f;
                ck_assert_double_eq(middle, (low + high) / 2);    /* exact in float32 */
                unsigned even = bits & 1 ? bits + 1 : bits;
                ck_assert_uint_eq(f->narrow(direction * middle), sign | even);
                ck_assert_uint_eq(f->narrow(direction * nextafterf(middle, 0)), sign | bits);
                ck_assert_uint_eq(f->narrow(direction * nextafterf(middle, INFINITY)), sign | (bits + 1));
            }
    }
}
END_OF_TEST

TEST(what_is_too_large_becomes_infinity)
{
    ck_assert_uint_eq(calm_f32_to_f16(65519.996f), 0x7bff);
    ck_assert_uint_eq(calm_f32_to_f16(65520.0f), 0x7c00);
    ck_assert_uint_eq(calm_f32_to_f16(-3.4e38f), 0xfc00);
    ck_assert_uint_eq(calm_f32_to_f16(-INFINITY), 0xfc00);
    ck_assert_uint_eq(calm_f32_to_bf16(3.4028235e38f), 0x7f80);
    ck_assert_uint_eq(calm_f32_to_bf16(INFINITY), 0x7f80);
}
END_OF_TEST

TEST(names_and_sizes)
{
    static const struct {
        const char *name;
        size_t bytes;
        bool is_float;
    } rows[] = {{"F64", 8, true},  {"F32", 4, true},  {"F16", 2, true},  {"BF16", 2, true}, {"I64", 8, false},
                {"I32", 4, false}, {"I16", 2, false}, {"I8", 1, false},  {"U64", 8, false}, {"U32", 4, false},
                {"U16", 2, false}, {"U8", 1, false},  {"BOOL", 1, false}, {"F8_E4M3", 1, false},
                {"F8_E8M0", 1, false}};
    ck_assert_uint_eq(sizeof rows / sizeof *rows, CALM_N_DTYPES);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        calm_dtype dtype = calm_dtype_find(rows[i].name);
        ck_assert_int_lt(dtype, CALM_N_DTYPES);
        ck_assert_str_eq(calm_dtype_name(dtype), rows[i].name);
        ck_assert_uint_eq(calm_dtype_bytes(dtype), rows[i].bytes);
        ck_assert(calm_dtype_is_float(dtype) == rows[i].is_float);
    }
    ck_assert_int_eq(calm_dtype_find("F8_E5M2"), CALM_N_DTYPES);
    ck_assert_int_eq(calm_dtype_find(""), CALM_N_DTYPES);
    ck_assert_ptr_nonnull(calm_dtype_name(CALM_N_DTYPES));
}
END_OF_TEST

/* Arrays at odd addresses and of odd lengths, against the conversion of single values. */
TEST(arrays_convert_at_any_alignment)
{
    static const calm_dtype dtypes[] = {CALM_F64, CALM_F32, CALM_F16, CALM_BF16};
    enum { N = 67 };
    float in[N], out[N];
    for (int i = 0; i < N; i++)
        in[i] = (float)(i - 30) * 0.37f;
    for (size_t k = 0; k < 4; k++)
        for (size_t shift = 0; shift < 8; shift++) {
            unsigned char bytes[8 * N + 8];
            memset(bytes, 0xaa, sizeof bytes);
            if (dtypes[k] == CALM_F64)
                for (int i = 0; i < N; i++)
                    memcpy(bytes + shift + 8 * i, &(double){in[i]}, 8);
            else
                ck_ok(calm_from_f32(ctx, dtypes[k], in, N, bytes + shift));
            ck_ok(calm_to_f32(ctx, dtypes[k], bytes + shift, N, out));
            for (int i = 0; i < N; i++) {
                float expected = in[i];
                if (dtypes[k] == CALM_F16)
                    expected = calm_f16_to_f32(calm_f32_to_f16(in[i]));
                if (dtypes[k] == CALM_BF16)
                    expected = calm_bf16_to_f32(calm_f32_to_bf16(in[i]));
                ck_assert_float_eq(out[i], expected);
            }
            ck_assert_uint_eq(bytes[shift + N * calm_dtype_bytes(dtypes[k])], 0xaa);
        }
}
END_OF_TEST

/* Lanes of a vector round as a single value does, via its bits. */
TEST(arrays_are_rounded_in_place)
{
    static const float special[] = {0, -0.0f, 1, -65519.996f, 65520, 0x1p-24f, 0x1.8p-24f, -0x1p-25f, 0x1.004p-14f,
                                    3.4028235e38f, 1e-45f, INFINITY, -INFINITY, NAN};
    enum { N = 1003, N_SPECIAL = sizeof special / sizeof *special };
    static const calm_dtype dtypes[] = {CALM_F32, CALM_F16, CALM_BF16};
    for (size_t k = 0; k < 3; k++) {
        float x[N], in[N];
        for (int i = 0; i < N; i++)
            in[i] = i % 3 ? (float)ldexp(calm_rng_normal(3, k, (uint64_t)i), i % 60 - 40) : special[i / 3 % N_SPECIAL];
        memcpy(x, in, sizeof x);
        calm_dtype_round_all(dtypes[k], x, N);
        for (int i = 0; i < N; i++) {
            float expected = in[i];
            if (dtypes[k] == CALM_F16)
                expected = calm_f16_to_f32(calm_f32_to_f16(in[i]));
            if (dtypes[k] == CALM_BF16)
                expected = calm_bf16_to_f32(calm_f32_to_bf16(in[i]));
            const float alone = calm_dtype_round(dtypes[k], in[i]);
            ck_assert(memcmp(&x[i], &expected, sizeof expected) == 0 && memcmp(&x[i], &alone, sizeof alone) == 0);
        }
    }
}
END_OF_TEST

TEST(other_types_are_not_converted)
{
    float value = 1;
    long long bytes = 0;
    ck_fails(calm_to_f32(ctx, CALM_I64, &bytes, 1, &value), CALM_EUNSUPPORTED, "I64");
    ck_fails(calm_from_f32(ctx, CALM_F64, &value, 1, &bytes), CALM_EUNSUPPORTED, "F64");
    ck_ok(calm_to_f32(ctx, CALM_F32, NULL, 0, NULL));
    ck_ok(calm_from_f32(ctx, CALM_BF16, NULL, 0, NULL));
}
END_OF_TEST

TEST(the_first_value_that_is_not_finite_is_found)
{
    enum { N = 10000 };
    static float x[N];
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    static const size_t places[] = {0, 1, 4095, 4096, 4097, 8191, 8192, N - 1};
    for (int i = 0; i < N; i++)
        x[i] = i % 2 ? 3.4028235e38f : -1e-45f;
    ck_assert_uint_eq(calm_find_nonfinite(x, N), N);
    ck_assert_uint_eq(calm_find_nonfinite(x, 0), 0);
    for (size_t b = 0; b < 4; b++)
        for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
            float kept = x[places[p]];
            x[places[p]] = bad[b];
            ck_assert_uint_eq(calm_find_nonfinite(x, N), places[p]);
            ck_assert_uint_eq(calm_find_nonfinite(x, places[p]), places[p]);
            x[places[p]] = kept;
        }
    x[77] = NAN;
    x[5000] = INFINITY;
    ck_assert_uint_eq(calm_find_nonfinite(x, N), 77);
}
END_OF_TEST

/* The names in config.json of the types in which models are published. */
TEST(words)
{
    static const calm_dtype types[] = {CALM_F32, CALM_F16, CALM_BF16};
    static const char *const expected[] = {"float32", "float16", "bfloat16"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        ck_assert_str_eq(calm_dtype_word(types[i]), expected[i]);
        ck_assert_int_eq(calm_dtype_of_word(expected[i]), types[i]);
    }
    ck_assert_int_eq(calm_dtype_of_word("float64"), CALM_N_DTYPES);
    ck_assert_int_eq(calm_dtype_of_word(""), CALM_N_DTYPES);
}
END_OF_TEST

int main(void)
{
    return run_tests("dtype",
                     (const TTest *[]){widening_is_exact_and_narrowing_undoes_it,
                                       narrowing_rounds_to_nearest_even_at_every_boundary,
                                       what_is_too_large_becomes_infinity, names_and_sizes,
                                       arrays_convert_at_any_alignment, arrays_are_rounded_in_place,
                                       other_types_are_not_converted, the_first_value_that_is_not_finite_is_found,
                                       words, NULL});
}
