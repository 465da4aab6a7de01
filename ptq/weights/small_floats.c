/* Decodes small floats in runs of a row that share a scale. */
#include "ptq/weights/small_floats.h"

#include <math.h>
#include <string.h>

#include "ptq/base/simd.h"
#include "ptq/tensor/dtype.h"

/* The values of all codes.  2^-9 is the smallest E4M3 number above 0; E4M3 has no infinity, and all ones is NaN. */
#define SIGN(code, bit) ((code) & (bit) ? -1.0f : 1.0f)
#define E4M3_SIZE(e, m) ((e) ? (float)((8 + (m)) << (e)) / 1024 : (float)(m) / 512)
#define E4M3(code)                                                                                                     \
    (((code) & 127) == 127 ? NAN : SIGN(code, 128) * E4M3_SIZE((code) >> 3 & 15, (code) & 7))
#define E2M1_SIZE(e, m) ((e) ? (float)((2 + (m)) << (e)) / 4 : (float)(m) / 2)
#define E2M1(nibble) (SIGN(nibble, 8) * E2M1_SIZE((nibble) >> 1 & 3, (nibble) & 1))
#define PAIR(code) {E2M1((code) & 15), E2M1((code) >> 4)}
#define ALL4(X, code) X(code), X((code) + 1), X((code) + 2), X((code) + 3)
#define ALL16(X, code) ALL4(X, code), ALL4(X, (code) + 4), ALL4(X, (code) + 8), ALL4(X, (code) + 12)
#define ALL64(X, code) ALL16(X, code), ALL16(X, (code) + 16), ALL16(X, (code) + 32), ALL16(X, (code) + 48)
#define ALL256(X) ALL64(X, 0), ALL64(X, 64), ALL64(X, 128), ALL64(X, 192)

static const float e4m3[256] = {ALL256(E4M3)};
static const float e2m1[256][2] = {ALL256(PAIR)};    /* the two values of a byte */

/* ---- a run ---- */

/* Computes the values of the table with vectorizable arithmetic: bits are moved to their place in float32, whose
 * exponents are larger by 120; values below 2^-6 are integer multiples of 2^-9. */
CALM_VECTORIZE static void widen_bytes(const uint8_t *codes, size_t n, float scale, float *out)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t code = codes[i], size = code & 127, sign = (code & 128) << 24;
        const uint32_t normal = (size << 20) + (120u << 23), least = calm_bits_of_float((float)(int32_t)size / 512);
        const uint32_t small = 0 - (uint32_t)(size < 8), nan = 0 - (uint32_t)(size == 127);
        const uint32_t bits = (least & small) | (normal & ~small) | (nan & 0x7fc00000u);
        out[i] = calm_float_of_bits(bits | sign) * scale;
    }
}

/* Decodes numbers first .. first + n - 1 of `codes`. */
static void widen_nibbles(const uint8_t *codes, size_t first, size_t n, float scale, float *out)
{
    size_t i = 0;
    /* A run may begin or end in the middle of a byte. */
    if (n && first % 2)
        out[i++] = e2m1[codes[first / 2]][1] * scale;
    for (; i + 2 <= n; i += 2) {
        const float *pair = e2m1[codes[(first + i) / 2]];
        out[i] = pair[0] * scale;
        out[i + 1] = pair[1] * scale;
    }
    if (i < n)
        out[i] = e2m1[codes[(first + i) / 2]][0] * scale;
}

/* ---- scales ---- */

/* Returns scale `at` before the division; NaN where its bits are NaN. */
static float scale_at(const calm_tensor *scales, size_t at)
{
    const uint8_t *data = scales->data + at * calm_dtype_bytes(scales->dtype);
    uint32_t word;
    uint16_t half;
    switch (scales->dtype) {
    case CALM_F32:
        memcpy(&word, data, sizeof word);
        return calm_float_of_bits(word);
    case CALM_BF16:
        memcpy(&half, data, sizeof half);
        return calm_bf16_to_f32(half);
    case CALM_F16:
        memcpy(&half, data, sizeof half);
        return calm_f16_to_f32(half);
    case CALM_F8_E4M3:
        return e4m3[*data];
    default:
        /* Exponents: 255 is NaN; 2^-127 is subnormal in float32. */
        return *data == 255 ? NAN : *data ? calm_float_of_bits((uint32_t)*data << 23) : 0x1p-127f;
    }
}

/* Returns scale `at`. */
static calm_status read_scale(calm_ctx *ctx, const calm_small_floats *from, size_t at, float *out)
{
    *out = scale_at(&from->scales, at) / from->divisor;
    return isfinite(*out) ? CALM_OK
                          : calm_fail(ctx, CALM_ENUMERIC, "%s: tensor %s: the scale at %zu is %g", from->scales.file,
                                      from->scales.name, at, (double)*out);
}

/* ---- the source ---- */

/* Decodes columns c .. c + n - 1 of a row; rows are counted through all matrices. */
static calm_status widen_row(calm_ctx *ctx, const calm_small_floats *from, size_t row, size_t c, size_t n, float *out)
{
    /* Divisions are slow compared with a short run, so there is one per row. */
    const size_t matrix = row / from->rows, grid_row = row % from->rows / from->block_rows;
    size_t block = c / from->block_columns, edge = block * from->block_columns;
    const size_t scales = (matrix * from->grid_rows + grid_row) * from->grid_columns;
    for (size_t end = c + n, run; c < end; c += run, out += run, block++) {
        const size_t first = row * from->columns + c;
        float scale;
        edge += from->block_columns;
        run = calm_size_min(end, edge) - c;
        CALM_TRY(read_scale(ctx, from, scales + block, &scale));
        if (from->packed)
            widen_nibbles(from->codes.data, first, run, scale, out);
        else
            widen_bytes(from->codes.data + first, run, scale, out);
    }
    return CALM_OK;
}

/* Decodes any elements, for a calm_tensor_source. */
static calm_status widen(calm_ctx *ctx, const void *self, const calm_tensor *tensor, size_t first, size_t n, float *out)
{
    const calm_small_floats *from = tensor->entry;
    (void)self;
    for (size_t done = 0, run; done < n; done += run) {
        const size_t row = (first + done) / from->columns, c = (first + done) % from->columns;
        run = calm_size_min(n - done, from->columns - c);
        CALM_TRY(widen_row(ctx, from, row, c, run, out + done));
        /* Rounded while the row is in the cache. */
        calm_dtype_round_all(tensor->dtype, out + done, run);
    }
    /* Codes that are NaN, and products that overflow the dtype. */
    const size_t bad = calm_find_nonfinite(out, n);
    return bad == n ? CALM_OK
                    : calm_fail(ctx, CALM_ENUMERIC, "%s: tensor %s: element %zu is %g; the checkpoint is damaged",
                                tensor->file, from->codes.name, first + bad, (double)out[bad]);
}

const calm_tensor_source calm_small_floats_source = {.widen = widen};
