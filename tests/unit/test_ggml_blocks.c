/* Blocks of ggml's types: the values of the gguf package, and the same bytes after unpacking and packing. */
#include "ptq/io/ggml_blocks_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ptq/base/file.h"
#include "ptq/base/sha256.h"
#include "tests/support/ggml_sample.h"
#include "tests/support/harness.h"

/* Returns the type of that name. */
static calm_ggml_type type_named(const char *name)
{
    for (uint32_t number = 0; number < 64; number++)
        if (calm_ggml_find(number) && strcmp(calm_ggml_find(number)->name, name) == 0)
            return (calm_ggml_type)number;
    ck_abort_msg("no type %s", name);
}

/* Returns the number of types in the table. */
static size_t n_types(void)
{
    size_t n = 0;
    for (uint32_t number = 0; number < 64; number++)
        n += calm_ggml_find(number) && calm_ggml_blocks_find((calm_ggml_type)number);
    return n;
}

/* Every type against the package's digest of the same blocks. */
TEST(as_the_package)
{
    FILE *file = fopen(test_data("ggml_blocks.txt"), "r");
    char name[16], digest[CALM_SHA256_HEX], expected[80];
    size_t n = 0;
    ck_assert_ptr_nonnull(file);
    while (fscanf(file, "%15s %79s", name, expected) == 2) {
        const calm_ggml_type type = type_named(name);
        size_t bytes;
        const uint8_t *blocks = ggml_sample(type, &bytes);
        const size_t elements = GGML_SAMPLE_BLOCKS * calm_ggml_find(type)->elements;
        float *values;
        ck_ok(CALM_NEW(ctx, ctx->out, values, elements));
        ck_ok(calm_ggml_to_f32(ctx, type, blocks, elements, values));
        for (size_t i = 0; i < elements; i++)
            values[i] = isnan(values[i]) ? NAN : values[i];    /* one NaN, 0x7fc00000 */
        ck_ok(calm_sha256_bytes(ctx, values, elements * sizeof *values, digest));
        ck_assert_msg(strcmp(digest, expected) == 0, "%s: other values than gguf's", name);
        n++;
    }
    fclose(file);
    ck_assert_uint_eq(n, n_types());
}
END_OF_TEST

/* The parts hold all of a block, so any bytes come back.  Codes and scales are below 2^bits. */
TEST(bytes_come_back)
{
    for (uint32_t number = 0; number < 64; number++) {
        const calm_ggml_blocks *rows = calm_ggml_find(number) ? calm_ggml_blocks_find((calm_ggml_type)number) : NULL;
        size_t bytes;
        if (!rows)
            continue;
        const size_t size = calm_ggml_find(number)->bytes;
        ck_assert_uint_le(size, CALM_GGML_BYTES_MAX);
        ck_assert_uint_eq(rows->elements, calm_ggml_find(number)->elements);
        const uint8_t *blocks = ggml_sample((calm_ggml_type)number, &bytes);
        for (size_t at = 0; at < bytes; at += size) {
            calm_ggml_parts parts;
            uint8_t again[CALM_GGML_BYTES_MAX];
            memset(again, 0xcc, sizeof again);    /* packing must not depend on earlier contents */
            calm_ggml_unpack(rows, blocks + at, &parts);
            calm_ggml_pack(rows, &parts, again);
            ck_assert_msg(memcmp(again, blocks + at, size) == 0, "%s", calm_ggml_find(number)->name);
            for (size_t i = 0; i < rows->elements; i++)
                ck_assert_int_lt(parts.codes[i], 1 << calm_ggml_code_bits(rows));
            for (size_t g = 0; g < rows->elements / rows->group && calm_ggml_scale_bits(rows); g++)
                ck_assert_int_lt(parts.scales[g], 1 << calm_ggml_scale_bits(rows));
        }
    }
}
END_OF_TEST

/* Each kind of type by its formula, with a scale of -0.75 and a minimum of 3. */
TEST(formulas)
{
    static const struct {
        calm_ggml_type type;
        int zero;
        bool adds;
    } rows[] = {{CALM_GGML_Q4_0, 8, false},  {CALM_GGML_Q4_1, 0, true},    {CALM_GGML_Q5_0, 16, false},
                {CALM_GGML_Q5_1, 0, true},   {CALM_GGML_Q8_0, 128, false}, {CALM_GGML_Q2_K, 0, false},
                {CALM_GGML_Q3_K, 4, false},  {CALM_GGML_Q4_K, 0, false},   {CALM_GGML_Q5_K, 0, false},
                {CALM_GGML_Q6_K, 32, false}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        const calm_ggml_blocks *b = calm_ggml_blocks_find(rows[k].type);
        const int n_codes = 1 << calm_ggml_code_bits(b), bits = calm_ggml_scale_bits(b), n_scales = 1 << bits;
        calm_ggml_parts parts = {.d = calm_f32_to_f16(-0.75f), .dmin = calm_f32_to_f16(3)};
        uint8_t block[CALM_GGML_BYTES_MAX];
        float out[CALM_GGML_BLOCK_MAX];
        for (size_t i = 0; i < b->elements; i++)
            parts.codes[i] = (uint8_t)(i * 7 % (size_t)n_codes);
        for (int g = 0; g < CALM_GGML_GROUPS_MAX && bits; g++) {
            parts.scales[g] = (uint8_t)(g * 5 % n_scales);
            parts.minima[g] = (uint8_t)(g * 11 % n_scales);
        }
        calm_ggml_pack(b, &parts, block);
        ck_ok(calm_ggml_to_f32(ctx, b->type, block, b->elements, out));
        for (size_t i = 0; i < b->elements; i++) {
            const size_t g = i / b->group;
            const float s = bits ? (float)(parts.scales[g] - b->scale_zero) : 1;
            const float m = bits && b->minimum ? -(float)parts.minima[g] : rows[k].adds;
            ck_assert(out[i] == -0.75f * s * (float)(parts.codes[i] - rows[k].zero) + 3 * m);
        }
    }
}
END_OF_TEST

/* Powers of two from 2^-128 to 2^127, subnormal ones too; levels of both signs. */
TEST(e8m0)
{
    const calm_ggml_blocks *b = calm_ggml_blocks_find(CALM_GGML_MXFP4);
    for (int e = 0; e < 256; e++)
        ck_assert(calm_ggml_scale_value(b, (uint16_t)e) == ldexpf(1, e - 128));
    ck_assert_int_eq(calm_ggml_level(b, 7), 12);
    ck_assert_int_eq(calm_ggml_level(b, 15), -12);
}
END_OF_TEST

/* Scales of NVFP4, halved: subnormal ones, the largest, the NaN that ggml reads as 0; the sign is ignored. */
TEST(e4m3)
{
    const calm_ggml_blocks *b = calm_ggml_blocks_find(CALM_GGML_NVFP4);
    static const struct {
        uint8_t bits;
        float value;
    } of[] = {{0, 0}, {1, 0x1p-10f}, {7, 7 * 0x1p-10f}, {8, 0x1p-7f}, {0x38, .5f}, {0x3c, .75f}, {0x7e, 224}, {0x7f, 0},
              {0xb8, .5f}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        ck_assert(calm_ggml_scale_value(b, of[i].bits) == of[i].value);
    calm_ggml_parts parts = {.scales = {0x38, 0x40, 0, 0x30}}, back;
    uint8_t block[CALM_GGML_BYTES_MAX];
    float out[CALM_GGML_BLOCK_MAX];
    for (size_t i = 0; i < 64; i++)
        parts.codes[i] = (uint8_t)(i % 16);
    calm_ggml_pack(b, &parts, block);
    ck_assert_uint_eq(block[4], 0x80);    /* elements 0 and 8 of the first group */
    ck_ok(calm_ggml_to_f32(ctx, b->type, block, 64, out));
    ck_assert(out[7] == 6 && out[15] == -6 && out[16 + 7] == 12 && out[32 + 7] == 0 && out[48 + 1] == .25f);
    calm_ggml_unpack(b, block, &back);
    ck_assert(memcmp(&back, &parts, sizeof parts) == 0);
}
END_OF_TEST

/* Codes and scales of types without levels and minima give the values, bit for bit; the other types have none. */
TEST(codes)
{
    size_t n_read = 0;
    for (uint32_t number = 0; number < 64; number++) {
        const calm_ggml_blocks *blocks = calm_ggml_find(number) ? calm_ggml_blocks_find((calm_ggml_type)number) : NULL;
        size_t bytes;
        if (!blocks)
            continue;
        const uint8_t *in = ggml_sample(blocks->type, &bytes);
        const size_t n = GGML_SAMPLE_BLOCKS * blocks->elements;
        uint8_t *found;
        float *values, *scales;
        ck_ok(CALM_NEW(ctx, ctx->out, found, n));
        ck_ok(CALM_NEW(ctx, ctx->out, values, n));
        ck_ok(CALM_NEW(ctx, ctx->out, scales, n / blocks->group));
        ck_ok(calm_ggml_to_f32(ctx, blocks->type, in, n, values));
        const bool read = calm_ggml_read_codes(blocks, in, n, found, scales);
        ck_assert(read == (!blocks->levels && !blocks->minimum));
        n_read += read;
        for (size_t i = 0; read && i < n; i++) {
            const float value = (float)(found[i] - blocks->zero) * scales[i / blocks->group];
            ck_assert(isnan(value) ? isnan(values[i]) : memcmp(&value, &values[i], sizeof value) == 0);
        }
    }
    ck_assert_uint_eq(n_read, 5);    /* Q4_0, Q5_0, Q8_0, Q3_K, Q6_K */
}
END_OF_TEST

/* The places of float16 scales in a block: a NaN there makes values that are not finite. */
TEST(halves)
{
    size_t at[2];
    ck_assert_uint_eq(calm_ggml_halves(CALM_GGML_F16, at), 0);
    ck_assert_uint_eq(calm_ggml_halves(CALM_GGML_MXFP4, at), 0);
    ck_assert_uint_eq(calm_ggml_halves(CALM_GGML_IQ2_S, at), 1);
    ck_assert_uint_eq(calm_ggml_halves(CALM_GGML_TQ1_0, at), 1);
    ck_assert_uint_eq(at[0], 52);
    for (uint32_t number = 0; number < 64; number++) {
        const calm_ggml_blocks *b = calm_ggml_find(number) ? calm_ggml_blocks_find((calm_ggml_type)number) : NULL;
        uint8_t block[CALM_GGML_BYTES_MAX];
        float out[CALM_GGML_BLOCK_MAX];
        const size_t n = b ? calm_ggml_halves(b->type, at) : 0;
        for (size_t s = 0; s < n; s++) {
            memset(block, 0x11, sizeof block);
            ck_ok(calm_ggml_to_f32(ctx, b->type, block, b->elements, out));
            ck_assert_uint_eq(calm_find_nonfinite(out, b->elements), b->elements);
            block[at[s]] = 1, block[at[s] + 1] = 0x7c;
            ck_ok(calm_ggml_to_f32(ctx, b->type, block, b->elements, out));
            ck_assert_uint_lt(calm_find_nonfinite(out, b->elements), b->elements);
        }
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("ggml_blocks", (const TTest *[]){as_the_package, bytes_come_back, formulas, e8m0, e4m3, codes,
                                                      halves, NULL});
}
