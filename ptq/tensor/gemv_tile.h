/* Matrix-vector products for one set of vector instructions.  The including file defines
 *
 *   TARGET    target attribute of the instruction set
 *   LANES     floats per vector: 4, 8 or 16
 *   KERNEL    name of the function to define
 *
 * Uses vector types of gcc and clang: all operations are per lane, so that every width gives the same bytes.  A
 * code is placed in the low mantissa bits of the float 2^23, and 2^23 + zero is subtracted, both exact: no
 * conversion is needed.  A code that is s bits up in its word stays there, and 2^-s scales its sum at the end. */
#pragma once

#include <string.h>

#include "ptq/tensor/gemv_kernel.h"
#include "ptq/tensor/int_kernel.h"
#include "ptq/tensor/lanes.h"

/* The bits of 2^23 as a float. */
#define MAGIC 0x4B000000u

/* ---- floats ---- */

/* Returns the sum of 32 lanes, added by halves. */
static inline float add_lanes(float lane[CALM_GEMV_COLUMNS])
{
    for (size_t half = CALM_GEMV_COLUMNS / 2; half; half /= 2)
        for (size_t l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

/* Adds 32 columns of float32; of bfloat16, where the low half of a word is an even column. */
#define ADD_F32(from, x)                                                                                               \
    _Pragma("GCC unroll 8") for (size_t p = 0; p < PARTS; p++)                                                         \
    {                                                                                                                  \
        low[p] += LOAD_REAL((from) + 4 * LANES * p) * LOAD_REAL((x) + LANES * p);                                      \
        high[p] += LOAD_REAL((from) + 64 + 4 * LANES * p) * LOAD_REAL((x) + 16 + LANES * p);                           \
    }
#define ADD_BF16(from, x)                                                                                              \
    _Pragma("GCC unroll 8") for (size_t p = 0; p < PARTS; p++)                                                         \
    {                                                                                                                  \
        const whole pair = LOAD_WHOLE((from) + 4 * LANES * p);                                                         \
        low[p] += (real)(pair << 16) * LOAD_REAL((x) + LANES * p);                                                     \
        high[p] += (real)(pair & 0xffff0000u) * LOAD_REAL((x) + 16 + LANES * p);                                       \
    }

/* Defines the dot product of one row.  Copies the columns after the last whole 32, padded with zeros. */
#define DEFINE_ROW(name, ADD, BYTES)                                                                                   \
    TARGET static float name(const uint8_t *row, size_t in, const float *x)                                            \
    {                                                                                                                  \
        real low[PARTS], high[PARTS];                                                                                  \
        float lane[CALM_GEMV_COLUMNS];                                                                                 \
        uint8_t rest[(BYTES) * CALM_GEMV_COLUMNS] = {0};                                                               \
        const size_t whole_columns = in / CALM_GEMV_COLUMNS * CALM_GEMV_COLUMNS;                                       \
        _Pragma("GCC unroll 8") for (size_t p = 0; p < PARTS; p++) low[p] = high[p] = (real){0};                       \
        for (size_t i = 0; i < whole_columns; i += CALM_GEMV_COLUMNS) {                                                \
            ADD(row + (BYTES) * i, x + i)                                                                              \
        }                                                                                                              \
        if (whole_columns < in) {                                                                                      \
            memcpy(rest, row + (BYTES) * whole_columns, (BYTES) * (in - whole_columns));                               \
            ADD(rest, x + whole_columns)                                                                               \
        }                                                                                                              \
        memcpy(lane, low, sizeof low);                                                                                 \
        memcpy(lane + 16, high, sizeof high);                                                                          \
        return add_lanes(lane);                                                                                        \
    }

/* Rows of float32. */
DEFINE_ROW(row_of_f32, ADD_F32, 4)
/* Rows of bfloat16. */
DEFINE_ROW(row_of_bf16, ADD_BF16, 2)

/* ---- codes: LANES rows of a panel ---- */

/* acc += x (code - zero) 2^s, for a code of `bits` bits at bit s of each word. */
#define ADD_CODE(acc, word, bits, s, zero, x)                                                                          \
    acc += ((real)(((word) & (((1u << (bits)) - 1) << (s))) | MAGIC) - (zero)) * (x);

/* Eight columns of 4-bit codes: the low halves of a word's bytes are the first four. */
#define EIGHT_4                                                                                                        \
    {                                                                                                                  \
        const whole word = LOAD_WHOLE(code), above = word >> 16;                                                       \
        ADD_CODE(sum0, word, 4, 0, zero0, x[0])                                                                        \
        ADD_CODE(sum8, word, 4, 8, zero8, x[1])                                                                        \
        ADD_CODE(sum4, word, 4, 4, zero4, x[4])                                                                        \
        ADD_CODE(sum12, word, 4, 12, zero12, x[5])                                                                     \
        ADD_CODE(sum0, above, 4, 0, zero0, x[2])                                                                       \
        ADD_CODE(sum8, above, 4, 8, zero8, x[3])                                                                       \
        ADD_CODE(sum4, above, 4, 4, zero4, x[6])                                                                       \
        ADD_CODE(sum12, above, 4, 12, zero12, x[7])                                                                    \
        code += 4 * CALM_INT_PANEL;                                                                                    \
    }
/* Four columns of 8-bit codes: one word. */
#define FOUR_8(at)                                                                                                     \
    {                                                                                                                  \
        const whole word = LOAD_WHOLE(code), above = word >> 16;                                                       \
        ADD_CODE(sum0, word, 8, 0, zero0, x[at])                                                                       \
        ADD_CODE(sum8, word, 8, 8, zero8, x[at + 1])                                                                   \
        ADD_CODE(sum4, above, 8, 0, zero0, x[at + 2])                                                                  \
        ADD_CODE(sum12, above, 8, 8, zero8, x[at + 3])                                                                 \
        code += 4 * CALM_INT_PANEL;                                                                                    \
    }
#define EIGHT_8 FOUR_8(0) FOUR_8(4)

/* The number to subtract for a group's zeros at bit s. */
#define ZERO(s) ((real)((zeros << (s)) | MAGIC))

/* Defines the product with LANES rows of a panel, the first at row `at`; down4, down8, down12 scale the sums. */
#define DEFINE_PANEL(name, EIGHT, down4, down8, down12)                                                                \
    TARGET static void name(const calm_int_weight *weight, size_t panel, size_t at, const float *x, float *out)        \
    {                                                                                                                  \
        const uint8_t *code = weight->codes + panel * weight->panel + 4 * at;                                          \
        real total = {0};                                                                                              \
        for (size_t g = 0; g < weight->n_groups; g++) {                                                                \
            const size_t cell = (panel * weight->n_groups + g) * CALM_INT_PANEL + at;                                  \
            const float *end = x + calm_int_group_columns(weight, g);                                                  \
            whole zeros = (whole){0} + (uint32_t)weight->zero;                                                         \
            if (weight->zeros)                                                                                         \
                zeros = LOAD_WHOLE(weight->zeros + cell);                                                              \
            const real zero0 = ZERO(0), zero4 = ZERO(4), zero8 = ZERO(8), zero12 = ZERO(12);                           \
            real sum0 = {0}, sum4 = {0}, sum8 = {0}, sum12 = {0};                                                      \
            (void)zero4;                                                                                               \
            (void)zero12;                                                                                              \
            for (; x < end; x += CALM_INT_STEP)                                                                        \
                EIGHT                                                                                                  \
            total += ((sum0 + sum4 * (down4)) + (sum8 * (down8) + sum12 * (down12))) *                                 \
                     LOAD_REAL(weight->scales + cell);                                                                 \
        }                                                                                                              \
        memcpy(out, &total, sizeof total);                                                                             \
    }

/* 4-bit codes. */
DEFINE_PANEL(panel_of_4, EIGHT_4, 0x1p-4f, 0x1p-8f, 0x1p-12f)
/* 8-bit codes. */
DEFINE_PANEL(panel_of_8, { EIGHT_8 }, 1.0f, 0x1p-8f, 0x1p-8f)

/* Multiplies panel by panel; rows beyond the last are not written. */
static void multiply_codes(const calm_gemv_piece *piece)
{
    const calm_int_weight *weight = piece->matrix->codes;
    float total[CALM_INT_PANEL];
    for (size_t row = piece->first; row < piece->end; row += CALM_INT_PANEL) {
        const size_t n = calm_size_min(piece->end - row, CALM_INT_PANEL);
        for (size_t at = 0; at < CALM_INT_PANEL; at += LANES)
            (weight->bits == 4 ? panel_of_4 : panel_of_8)(weight, row / CALM_INT_PANEL, at, piece->x, total + at);
        for (size_t r = 0; r < n; r++)
            piece->y[row + r] = piece->bias ? total[r] + piece->bias[row + r] : total[r];
    }
}

/* Implements calm_gemv_kernel. */
void KERNEL(const calm_gemv_piece *piece)
{
    const calm_gemv_matrix *matrix = piece->matrix;
    const size_t row_bytes = matrix->in * (matrix->bf16 ? 2 : 4);
    if (matrix->codes) {
        multiply_codes(piece);
        return;
    }
    for (size_t r = piece->first; r < piece->end; r++) {
        const uint8_t *row = (const uint8_t *)matrix->floats + r * row_bytes;
        const float sum = (matrix->bf16 ? row_of_bf16 : row_of_f32)(row, matrix->in, piece->x);
        piece->y[r] = piece->bias ? sum + piece->bias[r] : sum;
    }
}
