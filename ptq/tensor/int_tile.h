/* Tiles of integer matrix products, for one set of vector instructions.  The including file defines
 *
 *   TARGET          target attribute of the instruction set
 *   LANES           words of a vector: 8 or 16; whole, real: a vector of int32, of float
 *   load_bytes      loads LANES words of codes, any alignment         spread(n)          one int32 in all words
 *   load_floats, store_floats       LANES floats                      load_words         LANES int32
 *   low, high       the halves of every byte                          dot(s, w, a)       s + four products of unsigned
 *   add, subtract, multiply_words   of int32                                             w and signed a, per word
 *   to_real, times, plus            of floats, each rounded           dot_small          dot for w below 16
 *   spread_float    one float in all LANES
 *
 * A tile's name says how many rows by vectors of columns it has.  Array bounds are literals: gcc 12 keeps the
 * vectors in registers only then.  Totals over several groups are in memory, since the sums occupy the registers. */
#pragma once

#include <string.h>

#include "ptq/tensor/int_kernel.h"

/* Vectors per panel. */
#define PARTS (CALM_INT_PANEL / LANES)

/* Loads four codes of a row as one word. */
static inline int32_t word_at(const int8_t *a)
{
    int32_t word;
    memcpy(&word, a, sizeof word);
    return word;
}

/* Stores a tile of totals [rows, columns] to y, except rows and columns beyond the end of the piece or of y. */
static void put_edge(const calm_int_piece *piece, size_t first_column, size_t first_row, size_t rows, size_t columns,
                     const float *total)
{
    const size_t out = piece->weight->out, end = calm_size_min(piece->end_panel * CALM_INT_PANEL, out);
    for (size_t r = 0; r < rows && first_row + r < piece->end_row; r++)
        for (size_t c = 0; c < columns && first_column + c < end; c++) {
            const size_t row = first_row + r, column = first_column + c;
            const float value = total[r * columns + c] * piece->rows->scales[row];
            piece->y[row * out + column] = piece->bias ? value + piece->bias[column] : value;
        }
}

/* Initialises the sums of one group with the terms of zeros: one number per row if all codes have the same zero. */
#define START(ROWS, VECTORS)                                                                                           \
    _Pragma("GCC unroll 8") for (size_t r = 0; r < ROWS; r++)                                                          \
    {                                                                                                                  \
        const whole less = spread((int32_t)(0 - (uint32_t)sums[r][g] * (uint32_t)weight->zero));                       \
        _Pragma("GCC unroll 8") for (size_t v = 0; v < VECTORS; v++) sum[r][v] = less;                                 \
    }                                                                                                                  \
    if (zeros)                                                                                                         \
        _Pragma("GCC unroll 8") for (size_t r = 0; r < ROWS; r++)                                                      \
        {                                                                                                              \
            _Pragma("GCC unroll 8") for (size_t v = 0; v < VECTORS; v++)                                               \
            {                                                                                                          \
                const size_t place = cell[v] + g * CALM_INT_PANEL;                                                     \
                const whole of_row = spread(sums[r][g]), zero = spread(rows->zeros[at[r]]);                            \
                if (weight->zeros)                                                                                     \
                    sum[r][v] = subtract(spread(0), multiply_words(load_words(weight->zeros + place), of_row));        \
                sum[r][v] = subtract(sum[r][v], multiply_words(zero, load_words(weight->sums + place)));               \
            }                                                                                                          \
        }

/* Returns the sums of a group times their scales, plus `before`. */
#define TOTAL(before, r, v)                                                                                            \
    plus(before, times(to_real(sum[r][v]), load_floats(weight->scales + cell[v] + g * CALM_INT_PANEL)))

/* Stores a whole tile to y: TOTAL_OF(r, v) times the row's scale, plus BIAS(x, v). */
#define PUT(ROWS, VECTORS, TOTAL_OF, BIAS)                                                                             \
    _Pragma("GCC unroll 8") for (size_t r = 0; r < ROWS; r++)                                                          \
    {                                                                                                                  \
        const real of_row = spread_float(rows->scales[at[r]]);                                                         \
        float *to = piece->y + at[r] * weight->out + first_vector * LANES;                                             \
        _Pragma("GCC unroll 8") for (size_t v = 0; v < VECTORS; v++)                                                   \
            store_floats(to + v * LANES, BIAS(times(TOTAL_OF(r, v), of_row), v));                                      \
    }

/* Adds four columns for all rows. */
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

/* Bytes of a panel that are prefetched before they are needed. */
#define AHEAD 1024
/* With few rows, the weight comes from memory at the rate of these requests. */
#define FETCH(ROWS, VECTORS)                                                                                           \
    if (ROWS <= 2)                                                                                                     \
        _Pragma("GCC unroll 8") for (size_t v = 0; v < VECTORS; v++) __builtin_prefetch(code[v] + AHEAD);

/* Adds eight columns: two words of 8-bit codes, or both halves of one word of 4-bit codes. */
#define EIGHT_8(ROWS, VECTORS)                                                                                         \
    FETCH(ROWS, VECTORS)                                                                                               \
    QUAD(ROWS, VECTORS, dot, ALL_OF, 0)                                                                                \
    NEXT(VECTORS)                                                                                                      \
    QUAD(ROWS, VECTORS, dot, ALL_OF, 4)                                                                                \
    NEXT(VECTORS)
#define EIGHT_4(ROWS, VECTORS)                                                                                         \
    FETCH(ROWS, VECTORS)                                                                                               \
    QUAD(ROWS, VECTORS, dot_small, low, 0)                                                                             \
    QUAD(ROWS, VECTORS, dot_small, high, 4)                                                                            \
    NEXT(VECTORS)

#define STORED(r, v)  load_floats(total[r][v])
#define ADDED(r, v)   TOTAL(load_floats(total[r][v]), r, v)
#define ONLY(r, v)    TOTAL(to_real(spread(0)), r, v)
#define BARE(x, v)    (x)
#define BIASED(x, v)  plus(x, load_floats(piece->bias + (first_vector + v) * LANES))
#define KEEP(ROWS, VECTORS, TOTAL_OF)                                                                                  \
    _Pragma("GCC unroll 8") for (size_t v = 0; v < VECTORS; v++)                                                       \
    {                                                                                                                  \
        _Pragma("GCC unroll 8") for (size_t r = 0; r < ROWS; r++) store_floats(total[r][v], TOTAL_OF(r, v));           \
    }

/* Rows and panels beyond the end of the piece repeat the last one; their results are not stored. */
#define DEFINE_TILE(name, ROWS, VECTORS, EIGHT)                                                                        \
    TARGET static void name(const calm_int_piece *piece, size_t first_vector, size_t first_row)                        \
    {                                                                                                                  \
        const calm_int_weight *weight = piece->weight;                                                                 \
        const calm_int_rows *rows = piece->rows;                                                                       \
        const size_t last_vector = piece->end_panel * PARTS - 1;                                                       \
        const bool inside = first_row + ROWS <= piece->end_row && first_vector + VECTORS <= last_vector + 1            \
                            && (first_vector + VECTORS) * LANES <= weight->out;                                        \
        const uint8_t *code[VECTORS];                                                                                  \
        const int8_t *a[ROWS];                                                                                         \
        const int32_t *sums[ROWS];                                                                                     \
        size_t cell[VECTORS], at[ROWS];                                                                                \
        bool zeros = weight->zeros;                                                                                    \
        float total[ROWS][VECTORS][LANES] __attribute__((aligned(64)));                                                \
        for (size_t v = 0; v < VECTORS; v++) {                                                                         \
            const size_t vector = calm_size_min(first_vector + v, last_vector);                                        \
            const size_t lane = vector % PARTS * LANES;                                                                \
            code[v] = weight->codes + vector / PARTS * weight->panel + 4 * lane;                                       \
            cell[v] = vector / PARTS * weight->n_groups * CALM_INT_PANEL + lane;                                       \
        }                                                                                                              \
        for (size_t r = 0; r < ROWS; r++) {                                                                            \
            at[r] = calm_size_min(first_row + r, piece->end_row - 1);                                                  \
            a[r] = rows->codes + at[r] * rows->stride;                                                                 \
            sums[r] = rows->sums + at[r] * rows->n_groups;                                                             \
            zeros = zeros || rows->zeros[at[r]];                                                                       \
        }                                                                                                              \
        for (size_t v = 0; weight->n_groups > 1 && v < VECTORS; v++)                                                   \
            for (size_t r = 0; r < ROWS; r++)                                                                          \
                store_floats(total[r][v], to_real(spread(0)));                                                         \
        for (size_t g = 0; g < weight->n_groups; g++) {                                                                \
            const size_t begin = g * weight->group, end = begin + calm_int_group_columns(weight, g);                   \
            whole sum[ROWS][VECTORS];                                                                                  \
            START(ROWS, VECTORS)                                                                                       \
            for (size_t i = begin; i < end; i += CALM_INT_STEP) {                                                      \
                EIGHT(ROWS, VECTORS)                                                                                   \
            }                                                                                                          \
            if (weight->n_groups > 1) {                                                                                \
                KEEP(ROWS, VECTORS, ADDED)                                                                             \
            } else if (!inside) {                                                                                      \
                KEEP(ROWS, VECTORS, ONLY)                                                                              \
            } else if (piece->bias) {                                                                                  \
                PUT(ROWS, VECTORS, ONLY, BIASED)                                                                       \
                return;                                                                                                \
            } else {                                                                                                   \
                PUT(ROWS, VECTORS, ONLY, BARE)                                                                         \
                return;                                                                                                \
            }                                                                                                          \
        }                                                                                                              \
        if (!inside)                                                                                                   \
            put_edge(piece, first_vector * LANES, first_row, ROWS, VECTORS * LANES, &total[0][0][0]);         \
        else if (piece->bias) {                                                                                        \
            PUT(ROWS, VECTORS, STORED, BIASED)                                                                         \
        } else {                                                                                                       \
            PUT(ROWS, VECTORS, STORED, BARE)                                                                           \
        }                                                                                                              \
    }
