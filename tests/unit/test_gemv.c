/* Products with one row against sums in double, and the same bytes for every instruction set. */
#include "ptq/tensor/gemv.h"

#include <math.h>
#include <string.h>

#include "ptq/base/rng.h"
#include "ptq/tensor/half.h"
#include "tests/support/harness.h"
#include "tests/support/int_sets.h"

enum { MOST_OUT = 300, MOST_IN = 400, MOST = MOST_OUT * MOST_IN };

/* A matrix in memory, and its values. */
typedef struct form {
    calm_gemv_matrix matrix;
    double roundings;    /* roundings that a term passes at most */
    float w[MOST], x[MOST_IN], bias[MOST_OUT], scales[MOST];
    uint8_t codes[MOST], zeros[MOST], stored[4 * MOST + 1];
} form;

static double drawn(uint64_t stream, size_t i)
{
    return calm_rng_uniform(42, stream, i);
}

static form *new_form(size_t out, size_t in)
{
    form *f;
    ck_ok(CALM_NEW(ctx, ctx->out, f, 1));
    f->matrix = (calm_gemv_matrix){.out = out, .in = in};
    for (size_t i = 0; i < in; i++)
        f->x[i] = (float)calm_rng_normal(1, 0, i);
    for (size_t i = 0; i < out; i++)
        f->bias[i] = (float)drawn(2, i) - 0.5f;
    return f;
}

/* Makes floats at an odd address, as tensors in a file may have. */
static form *new_floats(size_t out, size_t in, bool bf16)
{
    form *f = new_form(out, in);
    f->matrix.floats = f->stored + 1;
    f->matrix.bf16 = bf16;
    f->roundings = (double)(in / 32) + 8;
    for (size_t i = 0; i < out * in; i++) {
        f->w[i] = (float)calm_rng_normal(3, 0, i);
        const uint16_t half = calm_f32_to_bf16(f->w[i]);
        if (bf16)
            f->w[i] = calm_bf16_to_f32(half);
        memcpy(f->stored + 1 + i * (bf16 ? 2 : 4), bf16 ? (const void *)&half : &f->w[i], bf16 ? 2 : 4);
    }
    return f;
}

/* Makes a matrix of codes; `own`: groups have separate zero points, one of them above all codes. */
static form *new_codes(size_t out, size_t in, int bits, size_t group, bool own)
{
    form *f = new_form(out, in);
    const size_t each = group && group < in ? group : in, groups = (in + each - 1) / each;
    const calm_int_source source = {out, in, bits, group, f->codes, f->scales, own ? f->zeros : NULL,
                                    1 << (bits - 1)};
    calm_int_weight *weight;
    char *memory;
    for (size_t i = 0; i < out * groups; i++) {
        f->scales[i] = (float)(0.001 + 0.01 * drawn(4, i));
        f->zeros[i] = (uint8_t)(drawn(5, i) * ((1 << bits) + (bits == 4)));
    }
    for (size_t i = 0; i < out * in; i++) {
        const size_t cell = i / in * groups + i % in / each;
        f->codes[i] = (uint8_t)(drawn(6, i) * (1 << bits));
        f->w[i] = (float)(f->codes[i] - (own ? f->zeros[cell] : 1 << (bits - 1))) * f->scales[cell];
    }
    ck_assert(calm_int_packs(&source));
    ck_ok(CALM_NEW(ctx, ctx->out, weight, 1));
    ck_ok(CALM_NEW(ctx, ctx->out, memory, calm_int_weight_bytes(&source) + 64));
    calm_int_pack(&source, memory + (64 - (uintptr_t)memory % 64) % 64, weight);
    f->matrix.codes = weight;
    /* The values above are rounded once more each. */
    f->roundings = (double)each / 4 + 4 + (double)weight->n_groups + 2;
    return f;
}

static void check_sums(const form *f, const float *y, const float *bias)
{
    const size_t in = f->matrix.in;
    for (size_t o = 0; o < f->matrix.out; o++) {
        double sum = bias ? (double)bias[o] : 0, size = fabs(sum);
        for (size_t i = 0; i < in; i++) {
            const double term = (double)f->x[i] * (double)f->w[o * in + i];
            sum += term;
            size += fabs(term);
        }
        ck_near(y[o], sum, 1.001 * f->roundings * 0x1p-24 * size);
    }
}

static void check(const form *f)
{
    static float y[MOST_OUT], again[MOST_OUT], wide[MOST];
    const size_t out = f->matrix.out, in = f->matrix.in, first = out / 3;
    for (int biased = 0; biased < 2; biased++) {
        const float *bias = biased ? f->bias : NULL;
        ctx->n_threads = 1;
        ck_ok(calm_gemv(ctx, &f->matrix, bias, f->x, y));
        check_sums(f, y, bias);
        for (int set = 0; set < CALM_N_INT_SETS; set++)
            for (ctx->n_threads = has_int_set(set) ? 1 : 5; ctx->n_threads <= 4; ctx->n_threads += 3) {
                ck_assert_int_eq(setenv(CALM_INT_VARIABLE, calm_int_set_names[set], 1), 0);
                memset(again, 0xff, sizeof again);
                ck_ok(calm_gemv(ctx, &f->matrix, bias, f->x, again));
                ck_assert_msg(memcmp(y, again, out * sizeof *y) == 0, "%zu x %zu: other bytes with %s", out, in,
                              calm_int_set_names[set]);
            }
    }
    ck_assert_int_eq(unsetenv(CALM_INT_VARIABLE), 0);
    ctx->n_threads = 1;
    calm_gemv_widen(&f->matrix, first, out - first, wide);
    ck_assert(memcmp(wide, f->w + first * in, (out - first) * in * sizeof *wide) == 0);
}

/* Rows and columns that panels, vectors and steps do not divide. */
static const size_t sizes[][2] = {{1, 1}, {16, 32}, {17, 31}, {33, 200}, {300, 400}, {5, 100}};

TEST(floats)
{
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int bf16 = 0; bf16 < 2; bf16++)
            check(new_floats(sizes[s][0], sizes[s][1], bf16));
}
END_OF_TEST

TEST(codes)
{
    static const size_t groups[] = {0, 8, 32, 128};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
            for (int bits = 4; bits <= 8; bits += 4)
                for (int own = 0; own < 2; own++)
                    check(new_codes(sizes[s][0], sizes[s][1], bits, groups[g], own));
}
END_OF_TEST

/* A value that is not finite affects only its row; an unknown CALM_SIMD is refused. */
TEST(odd_numbers)
{
    float y[16];
    form *f = new_codes(16, 64, 4, 32, false);
    form *bad = new_codes(16, 64, 4, 32, false);
    bad->scales[3] = NAN;    /* of row 1 */
    const calm_int_source source = {16, 64, 4, 32, bad->codes, bad->scales, NULL, 8};
    char *memory;
    calm_int_weight weight;
    ck_ok(CALM_NEW(ctx, ctx->out, memory, calm_int_weight_bytes(&source) + 64));
    calm_int_pack(&source, memory + (64 - (uintptr_t)memory % 64) % 64, &weight);
    bad->matrix.codes = &weight;
    ck_ok(calm_gemv(ctx, &bad->matrix, NULL, bad->x, y));
    for (size_t o = 0; o < 16; o++)
        ck_assert_int_eq(isnan(y[o]) != 0, o == 1);
    f->x[5] = INFINITY;
    ck_ok(calm_gemv(ctx, &f->matrix, NULL, f->x, y));
    for (size_t o = 0; o < 16; o++)
        ck_assert(!isfinite(y[o]));
    ck_assert_int_eq(setenv(CALM_INT_VARIABLE, "sse", 1), 0);
    ck_assert_int_eq(calm_gemv(ctx, &f->matrix, NULL, f->x, y), CALM_EARG);
    ck_assert_int_eq(unsetenv(CALM_INT_VARIABLE), 0);
    calm_ctx_clear_failure(ctx);
}
END_OF_TEST

/* Bytes of elements; for codes half a byte each and the scales of whole panels, and zero points if groups have them. */
TEST(bytes)
{
    ck_assert_int_eq(calm_gemv_bytes(&new_floats(3, 5, false)->matrix), 60);
    ck_assert_int_eq(calm_gemv_bytes(&new_floats(3, 5, true)->matrix), 30);
    ck_assert_int_eq(calm_gemv_bytes(&new_codes(17, 64, 4, 32, false)->matrix), 32 * 32 + 32 * 2 * 4);
    ck_assert_int_eq(calm_gemv_bytes(&new_codes(17, 64, 8, 32, true)->matrix), 32 * 64 + 32 * 2 * 8);
}
END_OF_TEST

int main(void)
{
    return run_tests("gemv", (const TTest *[]){floats, codes, odd_numbers, bytes, NULL});
}
