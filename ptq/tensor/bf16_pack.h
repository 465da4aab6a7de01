/* Packing of bfloat16 operands with AVX-512, for bf16_native.c and bf16_amx.c.
 *
 * Two neighbouring terms (k) form a pair, one 32-bit word.  A block of B is packed in panels of 32 columns,
 * [pairs][32] words.  Edges are padded with zeros.  A value has one part, its nearest bfloat16, or also a second
 * one, the bfloat16 nearest to the remainder (`rest`). */
#pragma once

#include <immintrin.h>
#include <string.h>

#include "ptq/tensor/product.h"

#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#define INLINE TARGET __attribute__((always_inline)) static inline

#define COLS 32
#define LANES 16

typedef uint32_t pair;

/* Returns the mask of the first n of sixteen lanes. */
INLINE __mmask16 lanes(size_t n)
{
    return n >= LANES ? 0xffff : (__mmask16)((1u << n) - 1);
}

/* Both parts of 32 values; `any`: bitwise or of all second parts so far. */
typedef struct parts {
    __m512i first, rest, any;
} parts;

/* Prefetches n values that are packed later; the addresses need not be valid. */
INLINE void fetch_values(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i += LANES)
        _mm_prefetch((const char *)(x + i), _MM_HINT_T0);
}

/* Returns x - held for sixteen values with first parts `held`; 0 where that is infinite or NaN. */
INLINE __m512i left(__m512 x, __m512i held)
{
    const __m512 rest = _mm512_sub_ps(x, _mm512_castsi512_ps(held));
    /* Fixup table: +0 (response 8) for both kinds of NaN and both infinities. */
    const __m512i zero = _mm512_set1_epi32(0x880088);
    return _mm512_castps_si512(_mm512_fixupimm_ps(rest, rest, zero, 0));
}

/* Splits thirty-two values into parts; the values of `low` come first. */
INLINE void round_parts(__m512 low, __m512 high, bool two, parts *out)
{
    /* Word i of one half above a zero word: the bfloat16 as a float32. */
    const __m512i one_word = _mm512_set_epi16(15, 0, 14, 0, 13, 0, 12, 0, 11, 0, 10, 0, 9, 0, 8, 0, 7, 0, 6, 0, 5, 0, 4,
                                              0, 3, 0, 2, 0, 1, 0, 0, 0),
                  high_word = _mm512_add_epi16(one_word, _mm512_set1_epi16(LANES));
    const __mmask32 odd = 0xaaaaaaaa;
    out->first = (__m512i)_mm512_cvtne2ps_pbh(high, low);
    if (two) {
        const __m512i low_rest = left(low, _mm512_maskz_permutexvar_epi16(odd, one_word, out->first)),
                      high_rest = left(high, _mm512_maskz_permutexvar_epi16(odd, high_word, out->first));
        out->rest = (__m512i)_mm512_cvtne2ps_pbh(_mm512_castsi512_ps(high_rest), _mm512_castsi512_ps(low_rest));
        out->any = _mm512_or_si512(out->any, out->rest);
    }
}

/* Returns whether any second part is nonzero; -0 counts as zero. */
INLINE bool any_rest(const parts *of)
{
    return _mm512_test_epi16_mask(of->any, _mm512_set1_epi16(0x7fff)) != 0;
}

/* Splits n <= 32 values into sixteen pairs, padded with zeros. */
INLINE void round_pairs(const float *x, size_t n, bool two, parts *out)
{
    round_parts(_mm512_maskz_loadu_ps(lanes(n), x),
                n > LANES ? _mm512_maskz_loadu_ps(lanes(n - LANES), x + LANES) : _mm512_setzero_ps(), two, out);
}

/* ---- operands with terms in rows: a pair joins two rows ---- */

/* Interleaves the two halves: words 0, 16, 1, 17, ... */
INLINE __m512i weave(__m512i x)
{
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                           21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(order, x);
}

/* Splits pair p of sixteen columns of x [terms, ...], of which n exist. */
INLINE void round_columns(const float *x, size_t stride, size_t terms, size_t p, size_t n, bool two, parts *out)
{
    const __m512 zero = _mm512_setzero_ps();
    const float *at = x + 2 * p * stride;
    round_parts(2 * p < terms ? _mm512_maskz_loadu_ps(lanes(n), at) : zero,
                2 * p + 1 < terms ? _mm512_maskz_loadu_ps(lanes(n), at + stride) : zero, two, out);
    out->first = weave(out->first);
    if (two)
        out->rest = weave(out->rest);
}

/* Row pairs of x that are read in turn: if rows are a multiple of 4 KiB apart, all of them map to one set of the
 * first-level cache, which has at least 8 ways. */
#define TOGETHER ((size_t)4)

/* Packs panels of `side` columns, [pairs][side], from x [terms, n]; a panel has room for `across` pairs. */
INLINE bool pack_terms(size_t n, size_t terms, size_t pairs, size_t across, const float *x, size_t stride, size_t side,
                       pair *out, pair *rest)
{
    parts both = {.any = _mm512_setzero_si512()};
    for (size_t begin = 0; begin < pairs; begin += TOGETHER)
        for (size_t first = 0; first < n; first += side)
            for (size_t p = begin; p < calm_size_min(begin + TOGETHER, pairs); p++)
                for (size_t at = 0; at < side; at += LANES) {
                    const size_t to = first * across + p * side + at, there = n - first > at ? n - first - at : 0;
                    fetch_values(x + 2 * (p + TOGETHER) * stride + first + at, 1);
                    fetch_values(x + (2 * (p + TOGETHER) + 1) * stride + first + at, 1);
                    round_columns(x + first + at, stride, terms, p, there, rest != NULL, &both);
                    _mm512_mask_storeu_epi32(out + to, lanes(side - at), both.first);
                    if (rest)
                        _mm512_mask_storeu_epi32(rest + to, lanes(side - at), both.rest);
                }
    return any_rest(&both);
}

/* ---- operands with terms in columns ---- */

/* Transposes sixteen vectors of sixteen words. */
INLINE void transpose(__m512i x[LANES])
{
    __m512i y[LANES];
    for (size_t i = 0; i < LANES; i += 2) {
        y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
    for (size_t i = 0; i < LANES; i += 4) {
        x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
        x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
        x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
        x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
    }
    /* x[4 q + c]: words c, c + 4, c + 8, c + 12 of rows 4 q .. 4 q + 3, one per quarter. */
    for (size_t c = 0; c < 4; c++) {
        const __m512i a = _mm512_shuffle_i32x4(x[c], x[4 + c], 0x88), d = _mm512_shuffle_i32x4(x[c], x[4 + c], 0xdd);
        const __m512i b = _mm512_shuffle_i32x4(x[8 + c], x[12 + c], 0x88),
                      e = _mm512_shuffle_i32x4(x[8 + c], x[12 + c], 0xdd);
        y[c] = _mm512_shuffle_i32x4(a, b, 0x88);
        y[8 + c] = _mm512_shuffle_i32x4(a, b, 0xdd);
        y[4 + c] = _mm512_shuffle_i32x4(d, e, 0x88);
        y[12 + c] = _mm512_shuffle_i32x4(d, e, 0xdd);
    }
    memcpy(x, y, sizeof y);
}

/* Transposes sixteen vectors of sixteen words and stores the first n results, `stride` words apart. */
INLINE void put_transposed(__m512i x[LANES], size_t n, pair *out, size_t stride)
{
    transpose(x);
    for (size_t i = 0; i < n; i++)
        _mm512_storeu_si512(out + i * stride, x[i]);
}

/* Packs panels of 32 columns from b [n, terms]. */
INLINE bool pack_columns(size_t n, size_t terms, size_t pairs, size_t across, const float *b, size_t ldb, pair *out,
                         pair *rest)
{
    parts both = {.any = _mm512_setzero_si512()};
    for (size_t first = 0; first < n; first += COLS)
        for (size_t half = 0; half < COLS; half += LANES)
            for (size_t p = 0; p < pairs; p += LANES) {
                const size_t to = first * across + p * COLS + half, there = calm_size_min(pairs - p, LANES);
                __m512i x[LANES], y[LANES];
                for (size_t i = 0; i < LANES; i++) {
                    both.first = both.rest = _mm512_setzero_si512();
                    fetch_values(b + (first + half + i + LANES) * ldb + 2 * p, 2 * LANES);
                    if (first + half + i < n)
                        round_pairs(b + (first + half + i) * ldb + 2 * p, calm_size_min(terms - 2 * p, 32),
                                    rest != NULL, &both);
                    x[i] = both.first;
                    y[i] = both.rest;
                }
                put_transposed(x, there, out + to, COLS);
                if (rest)
                    put_transposed(y, there, rest + to, COLS);
            }
    return any_rest(&both);
}

/* Packs columns of op(B) in either layout. */
INLINE bool pack_panels(calm_product_form form, size_t cols, size_t terms, size_t pairs, size_t across, const float *b,
                        size_t ldb, pair *out, pair *rest)
{
    return form == CALM_PRODUCT_NT ? pack_columns(cols, terms, pairs, across, b, ldb, out, rest)
                                   : pack_terms(cols, terms, pairs, across, b, ldb, COLS, out, rest);
}

/* Stores n of sixteen sums as c = sums + beta c. */
INLINE void put_line(__m512 sum, size_t n, float beta, float *c)
{
    if (beta != 0)
        sum = _mm512_add_ps(sum, _mm512_mul_ps(_mm512_set1_ps(beta), _mm512_maskz_loadu_ps(lanes(n), c)));
    _mm512_mask_storeu_ps(c, lanes(n), sum);
}
