/* Products with one row for one set of vector instructions.  The file that includes this defines
 *
 *   TARGET    the attribute of the set
 *   LANES     floats of a vector: 4, 8 or 16
 *   KERNEL    the function to define
 *
 * In vectors of gcc and clang: all operations are by lane, so that every width gives the same bytes.  A code becomes a
 * float without being converted: as the last bits of 2^23, from which 2^23 + zero is subtracted, both exact.  It stays
 * where it is in its word, s bits up, and so do its sums, which 2^-s scales in the end. */
#pragma once

#include <string.h>

#include "ptq/tensor/gemv_kernel.h"
#include "ptq/tensor/int_kernel.h"
#include "ptq/tensor/lanes.h"

/* 2^23 as a float. */
#define MAGIC 0x4B000000u

/* ---- floats ---- */

/* The sum of 32 lanes, by halves. */
static inline float add_lanes(float lane[CALM_GEMV_COLUMNS])
{
    for (size_t half = CALM_GEMV_COLUMNS / 2; half; half /= 2)
        for (size_t l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

/* 32 columns of float32, and of bfloat16, whose words have an even column in their low half. */
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

/* One row.  What is left of it behind the last 32 columns is copied, with zeros. */
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

/* A row of float32, and of bfloat16. */
DEFINE_ROW(row_of_f32, ADD_F32, 4)
/* The latter. */
DEFINE_ROW(row_of_bf16, ADD_BF16, 2)

/* ---- codes: LANES rows of a panel ---- */

/* acc += x (code - zero) 2^s, of the code `bits` wide that is s bits up in each word. */
#define ADD_CODE(acc, word, bits, s, zero, x)                                                                          \
    acc += ((real)(((word) & (((1u << (bits)) - 1) << (s))) | MAGIC) - (zero)) * (x);

/* Eight columns of 4 bits: the low halves of the bytes of a word are the first four. */
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
/* The same of 8 bits: two words. */
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

/* The zeros of a group, as what is subtracted. */
#define ZERO(s) ((real)((zeros << (s)) | MAGIC))

/* `at`: the first of the lanes in the panel; down4, down8, down12 scale the sums. */
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

/* Of codes of 4 bits, and of 8. */
DEFINE_PANEL(panel_of_4, EIGHT_4, 0x1p-4f, 0x1p-8f, 0x1p-12f)
/* The latter. */
DEFINE_PANEL(panel_of_8, { EIGHT_8 }, 1.0f, 0x1p-8f, 0x1p-8f)

/* Panel by panel; below the last row a panel has nothing to write. */
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

/* calm_gemv_kernel. */
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
