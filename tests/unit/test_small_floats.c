/* Small floats by their definition: every code, blocks that do not divide a matrix, scales of every dtype. */
#include "ptq/weights/small_floats.h"

#include "ptq/tensor/half.h"
#include "tests/support/harness.h"

enum { ROWS = 5, COLUMNS = 14, BLOCK_ROWS = 2, BLOCK_COLUMNS = 4, GRID_COLUMNS = 4, N = 2 * ROWS * COLUMNS,
       SCALES = 2 * 3 * GRID_COLUMNS };

/* OCP's E4M3: four exponent bits with bias 7, three mantissa bits; E2M1: two with bias 1, one. */
static double small_float(unsigned code, int exponents, int mantissas)
{
    const int bias = (1 << (exponents - 1)) - 1;
    const int e = (int)(code >> mantissas & ((1u << exponents) - 1)), m = (int)(code & ((1u << mantissas) - 1));
    const double size = e ? ldexp(1 + ldexp(m, -mantissas), e - bias) : ldexp(m, 1 - bias - mantissas);
    return code >> (exponents + mantissas) & 1 ? -size : size;
}

/* Two matrices with a scale per block, and their values. */
typedef struct matrices {
    uint8_t codes[N], scales[SCALES * 4];
    calm_small_floats entry;
    calm_tensor tensor;
    float expected[N];
} matrices;

static void put_scale(matrices *of, calm_dtype dtype, size_t at, float *value)
{
    const uint32_t bits = calm_bits_of_float(*value);
    const uint16_t bf16 = (uint16_t)(bits >> 16);
    if (dtype == CALM_F32)
        memcpy(of->scales + 4 * at, &bits, sizeof bits);
    else if (dtype == CALM_BF16)
        memcpy(of->scales + 2 * at, &bf16, sizeof bf16);
    else if (dtype == CALM_F16)    /* powers of two: mantissa 0 */
        memcpy(of->scales + 2 * at, &(uint16_t){(uint16_t)(((bits >> 23) - 112) << 10)}, 2);
    else
        of->scales[at] = dtype == CALM_F8_E4M3 ? (uint8_t)(((bits >> 23) - 120) << 3) : (uint8_t)(bits >> 23);
}

/* Fills in powers of two that every dtype has; for F32 other scales, whose products are rounded. */
static void fill(matrices *of, bool packed, calm_dtype scales, calm_dtype dtype, float divisor)
{
    float values[SCALES];
    for (size_t i = 0; i < SCALES; i++) {
        values[i] = ldexpf(1, (int)(i % 9) - 4) * (scales == CALM_F32 ? 1.2345f : 1);
        put_scale(of, scales, i, &values[i]);
    }
    for (size_t i = 0; i < N; i++) {
        const uint8_t code = (uint8_t)(i * 37 % 251);
        const size_t matrix = i / (ROWS * COLUMNS), row = i / COLUMNS % ROWS, column = i % COLUMNS;
        const float scale = values[(matrix * 3 + row / BLOCK_ROWS) * GRID_COLUMNS + column / BLOCK_COLUMNS] / divisor;
        const unsigned used = packed ? code & 15 : (code & 127) == 127 ? 0 : code;
        if (!packed)
            of->codes[i] = (uint8_t)used;
        else
            of->codes[i / 2] = (uint8_t)(i % 2 ? of->codes[i / 2] | used << 4 : used);
        const float value = (float)small_float(used, packed ? 2 : 4, packed ? 1 : 3) * scale;
        of->expected[i] = calm_dtype_round(dtype, value);
    }
    of->entry = (calm_small_floats){
        .codes = {.name = "m.weight", .file = "a file", .data = of->codes},
        .scales = {.name = "m.scales", .file = "a file", .dtype = scales, .data = of->scales},
        .packed = packed, .rows = ROWS, .columns = COLUMNS, .block_rows = BLOCK_ROWS, .block_columns = BLOCK_COLUMNS,
        .grid_rows = 3, .grid_columns = GRID_COLUMNS, .divisor = divisor};
    of->tensor = (calm_tensor){.name = "m.weight", .dtype = dtype, .n_dims = 3, .shape = {2, ROWS, COLUMNS},
                               .n_elements = N, .file = "a file", .entry = &of->entry,
                               .source = &calm_small_floats_source};
}

static void check(const matrices *of, size_t first, size_t n)
{
    float out[N];
    ck_ok(calm_tensor_part_to_f32(ctx, &of->tensor, first, n, out));
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(calm_bits_of_float(out[i]) == calm_bits_of_float(of->expected[first + i]),
                      "element %zu: %g, expected %g", first + i, (double)out[i], (double)of->expected[first + i]);
}

TEST(every_type)
{
    static const calm_dtype scales[] = {CALM_F32, CALM_BF16, CALM_F16, CALM_F8_E8M0, CALM_U8, CALM_F8_E4M3};
    static const calm_dtype dtypes[] = {CALM_F32, CALM_BF16, CALM_F16};
    matrices of;
    for (int packed = 0; packed < 2; packed++)
        for (size_t s = 0; s < sizeof scales / sizeof *scales; s++)
            for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
                fill(&of, packed, scales[s], dtypes[d], scales[s] == CALM_F8_E4M3 ? 3 : 1);
                check(&of, 0, N);
            }
}
END_OF_TEST

/* Pieces that begin and end within rows, blocks and bytes. */
TEST(pieces)
{
    matrices of;
    for (int packed = 0; packed < 2; packed++) {
        fill(&of, packed, CALM_F32, CALM_BF16, 1);
        for (size_t first = 0; first < N; first += 3)
            for (size_t n = 1; n <= N - first; n += 11)
                check(&of, first, n);
    }
}
END_OF_TEST

TEST(all_codes)
{
    uint8_t codes[512];
    const float one = 1;
    float out[256];
    calm_small_floats entry = {.codes = {.name = "w", .file = "f", .data = codes},
                               .scales = {.dtype = CALM_F32, .data = (const uint8_t *)&one}, .rows = 1, .columns = 256,
                               .block_rows = 1, .block_columns = 256, .grid_rows = 1, .grid_columns = 1, .divisor = 1};
    const calm_tensor tensor = {.name = "w", .dtype = CALM_F32, .n_dims = 2, .shape = {1, 256}, .n_elements = 256,
                                .file = "f", .entry = &entry, .source = &calm_small_floats_source};
    for (unsigned i = 0; i < 256; i++)
        codes[i] = (uint8_t)i;
    for (unsigned sign = 0; sign < 256; sign += 128) {
        ck_ok(calm_tensor_part_to_f32(ctx, &tensor, sign, 127, out));
        for (unsigned i = 0; i < 127; i++)
            ck_assert(calm_bits_of_float(out[i]) == calm_bits_of_float((float)small_float(sign + i, 4, 3)));
        ck_fails(calm_tensor_part_to_f32(ctx, &tensor, sign, 128, out), CALM_ENUMERIC,
                 test_format("tensor w: element %u is", sign + 127));
    }
}
END_OF_TEST

TEST(scales_that_are_no_numbers)
{
    matrices of;
    float out[N];
    fill(&of, false, CALM_F8_E8M0, CALM_BF16, 1);
    of.scales[7] = 255;
    ck_fails(calm_tensor_to_f32(ctx, &of.tensor, out), CALM_ENUMERIC, "tensor m.scales: the scale at 7 is nan");
    fill(&of, false, CALM_F32, CALM_BF16, 1);
    memcpy(of.scales + 4 * 9, &(float){INFINITY}, 4);
    ck_fails(calm_tensor_to_f32(ctx, &of.tensor, out), CALM_ENUMERIC, "tensor m.scales: the scale at 9 is inf");
}
END_OF_TEST

int main(void)
{
    return run_tests("small_floats",
                     (const TTest *[]){every_type, pieces, all_codes, scales_that_are_no_numbers, NULL});
}
