/* Tiles of products of whole numbers, for one set of vector instructions.  The file that includes this defines
 *
 *   TARGET          the attribute of the set
 *   LANES           words of a vector: 8 or 16; whole, real: a vector of int32, of float
 *   load_bytes      LANES words of codes from any address             spread(n)          one int32 in all words
 *   load_floats, store_floats       LANES floats                      load_words         LANES int32
 *   low, high       the halves of every byte                          dot(s, w, a)       s + four products of unsigned
 *   add, subtract, multiply_words   of int32                                             w and signed a, per word
 *   to_real, times, plus            of floats, each rounded           dot_small          the same for w below 16
 *   put             writes a vector of totals to y
 *
 * A tile is as many rows by as many vectors of columns as its name says.  Bounds of arrays are literals: gcc 12 keeps
 * their vectors in registers then, and only then.  Totals over groups are in memory: sums take the registers. */
#ifndef CALM_TENSOR_INT_TILE_H
#define CALM_TENSOR_INT_TILE_H

#include <string.h>

#include "ptq/tensor/int_kernel.h"

/* Vectors of a panel. */
#define PARTS (CALM_INT_PANEL / LANES)

/* Four codes of a row as one word. */
static inline int32_t word_at(const int8_t *a)
{
    int32_t word;
    memcpy(&word, a, sizeof word);
    return word;
}

/* Sums of one group, from what zeros take away: one number for a row, where all codes have one zero. */
#define START(ROWS, VECTORS)                                                                                           \
    _Pragma("GCC unroll 8") for (size_t r = 0; r < ROWS; r++)                                                          \
    {                                                                                                                  \
        const int32_t of_row = rows->sums[at[r] * rows->n_groups + g], zero = rows->zeros[at[r]];                      \
        const whole less = spread((int32_t)(0 - (uint32_t)of_row * (uint32_t)weight->zero));                           \
        _Pragma("GCC unroll 8") for (size_t v = 0; v < VECTORS; v++)                                                   \
        {                                                                                                              \
            const size_t place = cell[v] + g * CALM_INT_PANEL;                                                         \
            sum[r][v] = less;                                                                                          \
            if (weight->zeros)                                                                                         \
                sum[r][v] = subtract(spread(0), multiply_words(load_words(weight->zeros + place), spread(of_row)));    \
            if (zero)                                                                                                  \
                sum[r][v] = subtract(sum[r][v], multiply_words(spread(zero), load_words(weight->sums + place)));       \
        }                                                                                                              \
    }

/* Four columns of all rows. */
#define QUAD(ROWS, VECTORS, DOT, HALF, OFFSET)                                                                         \
    {                                                                                                                  \
        whole w[VECTORS];                                                                                              \
        _Pragma("GCC unroll 8") for (size_t v = 0; v < VECTORS; v++) w[v] = HALF(load_bytes(code[v]));                 \
        _Pragma("GCC unroll 8") for (size_t r = 0; r < ROWS; r++)                                                      \
        {                                                                                                              \
            const whole x = spread(word_at(a[r] + i + OFFSET));                                                        \
            _Pragma("GCC unroll 8") for (size_t v = 0; v < VECTORS; v++) sum[r][v] = DOT(sum[r][v], w[v], x);          \
        }                                                                                                              \
    }

#define NEXT(VECTORS) _Pragma("GCC unroll 8") for (size_t v = 0; v < VECTORS; v++) code[v] += 4 * CALM_INT_PANEL;

#define ALL_OF(byte) (byte)

/* Eight columns: two words of codes of 8 bits, or both halves of one. */
#define EIGHT_8(ROWS, VECTORS)                                                                                         \
    QUAD(ROWS, VECTORS, dot, ALL_OF, 0)                                                                                \
    NEXT(VECTORS)                                                                                                      \
    QUAD(ROWS, VECTORS, dot, ALL_OF, 4)                                                                                \
    NEXT(VECTORS)
#define EIGHT_4(ROWS, VECTORS)                                                                                         \
    QUAD(ROWS, VECTORS, dot_small, low, 0)                                                                             \
    QUAD(ROWS, VECTORS, dot_small, high, 4)                                                                            \
    NEXT(VECTORS)

/* Rows and panels past the end of the piece are those of the last one, computed again and not stored. */
#define DEFINE_TILE(name, ROWS, VECTORS, EIGHT)                                                                        \
    TARGET static void name(const calm_int_piece *piece, size_t first_vector, size_t first_row)                        \
    {                                                                                                                  \
        const calm_int_weight *weight = piece->weight;                                                                 \
        const calm_int_rows *rows = piece->rows;                                                                       \
        const uint8_t *code[VECTORS];                                                                                  \
        const int8_t *a[ROWS];                                                                                         \
        size_t cell[VECTORS], at[ROWS];                                                                                \
        float total[ROWS][VECTORS][LANES] __attribute__((aligned(64)));                                                \
        for (size_t v = 0; v < VECTORS; v++)                                                                           \
            for (size_t r = 0; r < ROWS; r++)                                                                          \
                store_floats(total[r][v], to_real(spread(0)));                                                         \
        for (size_t v = 0; v < VECTORS; v++) {                                                                         \
            const size_t vector = calm_size_min(first_vector + v, piece->end_panel * PARTS - 1);                       \
            const size_t lane = vector % PARTS * LANES;                                                                \
            code[v] = weight->codes + vector / PARTS * weight->panel + 4 * lane;                                       \
            cell[v] = vector / PARTS * weight->n_groups * CALM_INT_PANEL + lane;                                       \
        }                                                                                                              \
        for (size_t r = 0; r < ROWS; r++) {                                                                            \
            at[r] = calm_size_min(first_row + r, piece->end_row - 1);                                                  \
            a[r] = rows->codes + at[r] * rows->stride;                                                                 \
        }                                                                                                              \
        for (size_t g = 0; g < weight->n_groups; g++) {                                                                \
            const size_t begin = g * weight->group, end = begin + calm_int_group_columns(weight, g);                   \
            whole sum[ROWS][VECTORS];                                                                                  \
            START(ROWS, VECTORS)                                                                                       \
            for (size_t i = begin; i < end; i += CALM_INT_STEP) {                                                      \
                EIGHT(ROWS, VECTORS)                                                                                   \
            }                                                                                                          \
            _Pragma("GCC unroll 8") for (size_t v = 0; v < VECTORS; v++)                                               \
            {                                                                                                          \
                const real scale = load_floats(weight->scales + cell[v] + g * CALM_INT_PANEL);                         \
                _Pragma("GCC unroll 8") for (size_t r = 0; r < ROWS; r++)                                              \
                {                                                                                                      \
                    const real part = times(to_real(sum[r][v]), scale);                                                \
                    store_floats(total[r][v], plus(load_floats(total[r][v]), part));                                   \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
        for (size_t r = 0; r < ROWS && first_row + r < piece->end_row; r++)                                            \
            for (size_t v = 0; v < VECTORS && first_vector + v < piece->end_panel * PARTS; v++)                        \
                put(piece, at[r], (first_vector + v) * LANES, load_floats(total[r][v]));                               \
    }

#endif
