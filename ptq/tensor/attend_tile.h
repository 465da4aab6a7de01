/* Integer attention for one set of vector instructions.  The including file defines
 *
 *   TARGET          target attribute of the instruction set
 *   LANES           32-bit words per vector: 4, 8 or 16
 *   TILE_ROWS       queries that are computed together, with two vectors of sums each: as many as registers allow
 *   dot(s, a, b)    s + the two products of signed 16-bit halves of each word
 *   greater(a, b)   per lane of floats, a if a > b, else b
 *   KERNEL          name of the function to define
 *
 * Uses vector types of gcc and clang, as gemv_tile.h does. */
#pragma once

#include <math.h>
#include <string.h>

#include "ptq/tensor/attend_kernel.h"
#include "ptq/tensor/lanes.h"

typedef int32_t signed_words __attribute__((vector_size(4 * LANES)));
typedef int16_t halves __attribute__((vector_size(2 * LANES)));

/* 1.5 * 2^23: adding it to a float rounds the float to an integer, which is then in the low mantissa bits. */
#define MAGIC      12582912.0f
#define MAGIC_BITS 0x4B400000u

#define TO_REAL(sum) __builtin_convertvector((signed_words)(sum), real)

#define EACH_ROW _Pragma("GCC unroll 8") for (size_t r = 0; r < TILE_ROWS; r++)

#define EACH_OF_4 _Pragma("GCC unroll 4") for (size_t v = 0; v < 4; v++)

/* Loads two codes as one word. */
static inline int32_t word_at(const int16_t *codes)
{
    int32_t word;
    memcpy(&word, codes, sizeof word);
    return word;
}

/* Returns the address of vector w in panels of 16 keys (or channels) with `words` words each. */
static inline const int16_t *vector_at(const int16_t *panels, size_t words, size_t w)
{
    return panels + w / PARTS * 32 * words + w % PARTS * 2 * LANES;
}

/* Computes the sums over n words: sum[r][v] adds up dot products of row r [TILE_ROWS, stride] with vector v of two. */
#define SUM_WORDS(n, rows, stride, vector0, vector1)                                                                   \
    EACH_ROW sum[r][0] = sum[r][1] = (whole){0};                                                                       \
    for (size_t i = 0; i < (n); i++) {                                                                                 \
        const whole line0 = LOAD_WHOLE((vector0) + 32 * i), line1 = LOAD_WHOLE((vector1) + 32 * i);                    \
        EACH_ROW                                                                                                       \
        {                                                                                                              \
            const whole of_row = (whole){0} + (uint32_t)word_at((rows) + r * (stride) + 2 * i);                        \
            sum[r][0] = dot(sum[r][0], line0, of_row);                                                                 \
            sum[r][1] = dot(sum[r][1], line1, of_row);                                                                 \
        }                                                                                                              \
    }

/* Computes z of queries first .. first + TILE_ROWS - 1 and all keys of the block. */
TARGET static void multiply_keys(const calm_attend_block *block, size_t first)
{
    const calm_attend_keys *keys = block->keys;
    const size_t words = keys->k_width / 2;
    const int16_t *q = keys->q + first * keys->k_width;
    for (size_t w = block->begin / LANES; w < block->stop / LANES; w += 2) {
        const int16_t *line = vector_at(keys->k, words, w), *next = vector_at(keys->k, words, w + 1);
        const real scale0 = LOAD_REAL(keys->k_scale + w * LANES), scale1 = LOAD_REAL(keys->k_scale + (w + 1) * LANES);
        whole sum[TILE_ROWS][2];
        SUM_WORDS(words, q, keys->k_width, line, next)
        EACH_ROW
        {
            float *z = keys->z + (first + r) * keys->n_padded + w * LANES;
            *(real_at *)(void *)z = TO_REAL(sum[r][0]) * scale0 * block->q_scale[first + r];
            *(real_at *)(void *)(z + LANES) = TO_REAL(sum[r][1]) * scale1 * block->q_scale[first + r];
        }
    }
}

/* Returns the maximum of z [n]; n is a multiple of four vectors. */
TARGET static float largest(size_t n, const float *z)
{
    real a = LOAD_REAL(z), b = a, c = a, d = a;
    for (size_t i = 0; i < n; i += 4 * LANES) {
        a = greater(LOAD_REAL(z + i), a);
        b = greater(LOAD_REAL(z + i + LANES), b);
        c = greater(LOAD_REAL(z + i + 2 * LANES), c);
        d = greater(LOAD_REAL(z + i + 3 * LANES), d);
    }
    a = greater(greater(a, b), greater(c, d));
    float most = a[0];
    for (size_t l = 1; l < LANES; l++)
        most = a[l] > most ? a[l] : most;
    return most;
}

/* Computes p [n] = round(P 2^(z - most)), n a multiple of four vectors; returns their sum.  2^z = 2^integer 2^rest:
 * the polynomial in |rest| <= 1/2 has an error of 4e-6, far below half a code; below 2^-16 all codes are 0.
 * Interleaves four vectors to hide the latency of dependent operations. */
TARGET static int64_t numerators(size_t n, float most, const float *z, int16_t *p)
{
    const real least = (real){0} - 16.0f;
    whole sum = {0};
    int64_t total = 0;
    for (size_t i = 0; i < n; i += 4 * LANES) {
        real rounded[4], rest[4], power[4];
        whole code[4];
        EACH_OF_4 rest[v] = greater(LOAD_REAL(z + i + v * LANES) - most, least);
        EACH_OF_4 rounded[v] = rest[v] + MAGIC;
        EACH_OF_4 rest[v] -= rounded[v] - MAGIC;
        EACH_OF_4 power[v] = rest[v] * (9.6181291e-3f * CALM_ATTEND_P) + 5.5504109e-2f * CALM_ATTEND_P;
        EACH_OF_4 power[v] = power[v] * rest[v] + 2.4022651e-1f * CALM_ATTEND_P;
        EACH_OF_4 power[v] = power[v] * rest[v] + 6.9314718e-1f * CALM_ATTEND_P;
        EACH_OF_4 power[v] = power[v] * rest[v] + CALM_ATTEND_P;
        /* Adds the integer part, which is in the low bits, to the exponent. */
        EACH_OF_4 power[v] = (real)((whole)power[v] + ((whole)rounded[v] << 23));
        EACH_OF_4 code[v] = (whole)(power[v] + MAGIC);
        EACH_OF_4
        {
            const halves narrow = __builtin_convertvector(code[v], halves);
            memcpy(p + i + v * LANES, &narrow, sizeof narrow);
        }
        sum += (code[0] + code[1]) + (code[2] + code[3]);
    }
    /* Codes were added with the bits of MAGIC, modulo 2^32. */
    sum -= (uint32_t)(n / LANES) * MAGIC_BITS;
    for (size_t l = 0; l < LANES; l++)
        total += sum[l];
    return total;
}

/* Computes the numerators p of query r; returns the reciprocal of their sum. */
TARGET static float exponentiate(const calm_attend_block *block, size_t r)
{
    const calm_attend_keys *keys = block->keys;
    float *z = keys->z + r * keys->n_padded;
    for (size_t j = block->begin; j < block->first[r]; j++)
        z[j] = -INFINITY;
    for (size_t j = block->end[r]; j < block->stop; j++)
        z[j] = -INFINITY;
    const size_t n = block->stop - block->begin;
    z += block->begin;
    return 1.0f / (float)numerators(n, largest(n, z), z, keys->p + r * keys->n_padded + block->begin);
}

/* Computes the context of queries first .. first + TILE_ROWS - 1. */
TARGET static void multiply_values(const calm_attend_block *block, size_t first, const float *factor)
{
    const calm_attend_keys *keys = block->keys;
    const size_t words = CALM_ATTEND_KEYS / 2;
    for (size_t w = 0; w < keys->v_width / LANES; w += 2) {
        real total[TILE_ROWS][2];
        whole sum[TILE_ROWS][2];
        EACH_ROW total[r][0] = total[r][1] = (real){0};
        for (size_t j = block->begin; j < block->stop; j += CALM_ATTEND_KEYS) {
            const int16_t *group = keys->v + j * keys->v_width, *p = keys->p + first * keys->n_padded + j;
            const int16_t *line = vector_at(group, words, w), *next = vector_at(group, words, w + 1);
            const float *scale = keys->v_scale + j / CALM_ATTEND_KEYS * keys->v_width + w * LANES;
            SUM_WORDS(words, p, keys->n_padded, line, next)
            EACH_ROW
            {
                total[r][0] += TO_REAL(sum[r][0]) * LOAD_REAL(scale);
                total[r][1] += TO_REAL(sum[r][1]) * LOAD_REAL(scale + LANES);
            }
        }
        EACH_ROW
        {
            float *to = keys->context + (first + r) * keys->v_width + w * LANES;
            *(real_at *)(void *)to = total[r][0] * factor[first + r];
            *(real_at *)(void *)(to + LANES) = total[r][1] * factor[first + r];
        }
    }
}

/* Implements calm_attend_kernel. */
void KERNEL(const calm_attend_block *block)
{
    float factor[CALM_ATTEND_ROWS];
    for (size_t r = 0; r < CALM_ATTEND_ROWS; r += TILE_ROWS)
        multiply_keys(block, r);
    for (size_t r = 0; r < CALM_ATTEND_ROWS; r++)
        factor[r] = exponentiate(block, r);
    for (size_t r = 0; r < CALM_ATTEND_ROWS; r += TILE_ROWS)
        multiply_values(block, r, factor);
}
