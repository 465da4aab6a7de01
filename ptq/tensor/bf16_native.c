/* Blocks of bfloat16 by AVX512-BF16: VDPBF16PS adds two products to each of sixteen float32 sums.
 *
 * Two neighbouring terms of a sum, a pair, are one word of 32 bits.  A block of B is packed in panels of 32 columns,
 * [pairs][32] words; of A either row by row, as it is there, or in panels of 12 rows, [pairs][12].  12 rows by 32
 * columns of sums stay in registers while a panel's pairs go by; a panel of B stays in the first level of the cache
 * while all rows of A do.  What is missing at the edges is packed as zeros. */
#include "ptq/tensor/bf16_kernel.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>
#include <string.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#define INLINE TARGET __attribute__((always_inline)) static inline

#define BLOCK_ROWS 384
#define ROWS 12
#define COLS 32
#define LANES 16
/* Bytes from a row of A to the next: rows of a power of two would share few sets of the cache. */
#define ROW_BYTES (CALM_BF16_TERMS * 2 + 64)

typedef uint32_t pair;

static size_t pairs_of(size_t terms)
{
    return (terms + 1) / 2;
}

/* The first n of sixteen lanes. */
INLINE __mmask16 lanes(size_t n)
{
    return n >= LANES ? 0xffff : (__mmask16)((1u << n) - 1);
}

/* n <= 32 values as sixteen pairs, zeros behind them. */
INLINE __m512i round_pairs(const float *x, size_t n)
{
    const __m512 low = _mm512_maskz_loadu_ps(lanes(n), x);
    const __m512 high = n > LANES ? _mm512_maskz_loadu_ps(lanes(n - LANES), x + LANES) : _mm512_setzero_ps();
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/* ---- operands whose rows are terms: pairs are of two rows ---- */

/* Sixteen columns of terms x and y (NULL: there is none), n of them there. */
INLINE __m512i weave(const float *x, const float *y, size_t n)
{
    /* Words 0, 16, 1, 17, ... of both behind each other. */
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                           21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512 low = _mm512_maskz_loadu_ps(lanes(n), x);
    const __m512 high = y ? _mm512_maskz_loadu_ps(lanes(n), y) : _mm512_setzero_ps();
    return _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(high, low));
}

/* Rows of x that are read side by side: where they are a multiple of 4 KiB apart, all of them share one set of the
 * first level of the cache, which has 8 lines at least. */
#define TOGETHER ((size_t)4)

/* Panels of `side` columns from x [terms, n]. */
INLINE void pack_terms(size_t n, size_t terms, const float *x, size_t stride, size_t side, pair *out)
{
    const size_t pairs = pairs_of(terms);
    for (size_t begin = 0; begin < pairs; begin += TOGETHER)
        for (size_t first = 0; first < n; first += side)
            for (size_t p = begin; p < calm_size_min(begin + TOGETHER, pairs); p++) {
                const float *low = x + 2 * p * stride + first, *high = 2 * p + 1 < terms ? low + stride : NULL;
                pair *to = out + first * pairs + p * side;
                for (size_t at = 0; at < side; at += LANES) {
                    const size_t left = n - first > at ? n - first - at : 0;
                    _mm512_mask_storeu_epi32(to + at, lanes(side - at), weave(low + at, high ? high + at : NULL, left));
                }
            }
}

/* ---- operands whose columns are terms ---- */

/* Transpose sixteen vectors of sixteen words. */
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
    /* x[4 q + c]: words c, c + 4, c + 8, c + 12 of rows 4 q .. 4 q + 3, in its four quarters. */
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

/* Panels of 32 columns from b [n, terms]. */
TARGET static void pack_columns(size_t n, size_t terms, const float *b, size_t ldb, pair *out)
{
    const size_t pairs = pairs_of(terms);
    for (size_t first = 0; first < n; first += COLS, out += pairs * COLS)
        for (size_t half = 0; half < COLS; half += LANES)
            for (size_t p = 0; p < pairs; p += LANES) {
                __m512i x[LANES];
                for (size_t i = 0; i < LANES; i++)
                    x[i] = first + half + i < n
                               ? round_pairs(b + (first + half + i) * ldb + 2 * p, calm_size_min(terms - 2 * p, 32))
                               : _mm512_setzero_si512();
                transpose(x);
                for (size_t i = 0; i < calm_size_min(pairs - p, LANES); i++)
                    _mm512_storeu_si512(out + (p + i) * COLS + half, x[i]);
            }
}

/* Rows one after the other, up to a multiple of what is multiplied at once. */
TARGET static void pack_plain_rows(size_t n, size_t terms, const float *a, size_t lda, char *out)
{
    for (size_t i = 0; i < n; i++, out += ROW_BYTES)
        for (size_t t = 0; t < terms; t += 2 * LANES)
            _mm512_storeu_si512(out + 2 * t, round_pairs(a + i * lda + t, calm_size_min(terms - t, 2 * LANES)));
    for (size_t i = n; i % ROWS; i++, out += ROW_BYTES)
        memset(out, 0, 4 * pairs_of(terms));
}

TARGET static void pack_rows(calm_product_form form, size_t rows, size_t terms, const float *a, size_t lda, void *out)
{
    if (form == CALM_PRODUCT_TN)
        pack_terms(rows, terms, a, lda, ROWS, out);
    else
        pack_plain_rows(rows, terms, a, lda, out);
}

TARGET static void pack_cols(calm_product_form form, size_t cols, size_t terms, const float *b, size_t ldb, void *out)
{
    if (form == CALM_PRODUCT_NT)
        pack_columns(cols, terms, b, ldb, out);
    else
        pack_terms(cols, terms, b, ldb, COLS, out);
}

/* ---- the product ---- */

/* sum = 12 rows from `a`, `row` bytes apart and their pairs `step`, times a panel of B. */
INLINE void sum_pairs(const char *a, size_t row, size_t step, size_t pairs, const pair *b, __m512 sum[ROWS][2])
{
    for (size_t r = 0; r < ROWS; r++)
        sum[r][0] = sum[r][1] = _mm512_setzero_ps();
    for (size_t p = 0; p < pairs; p++) {
        const __m512bh low = (__m512bh)_mm512_load_si512(b + p * COLS),
                       high = (__m512bh)_mm512_load_si512(b + p * COLS + LANES);
#pragma GCC unroll 12
        for (size_t r = 0; r < ROWS; r++) {
            pair word;
            memcpy(&word, a + r * row + p * step, sizeof word);
            const __m512bh x = (__m512bh)_mm512_set1_epi32((int)word);
            sum[r][0] = _mm512_dpbf16_ps(sum[r][0], x, low);
            sum[r][1] = _mm512_dpbf16_ps(sum[r][1], x, high);
        }
    }
}

/* C [rows, cols] = the sums + beta C. */
INLINE void put_sums(__m512 sum[ROWS][2], size_t rows, size_t cols, float beta, float *c, size_t ldc)
{
    const __mmask16 first = lanes(cols), second = cols > LANES ? lanes(cols - LANES) : 0;
    const __m512 times = _mm512_set1_ps(beta);
#pragma GCC unroll 12
    for (size_t r = 0; r < ROWS; r++)
        if (r < rows) {
            float *to = c + r * ldc;
            if (beta != 0) {
                sum[r][0] = _mm512_add_ps(sum[r][0], _mm512_mul_ps(times, _mm512_maskz_loadu_ps(first, to)));
                sum[r][1] = _mm512_add_ps(sum[r][1], _mm512_mul_ps(times, _mm512_maskz_loadu_ps(second, to + LANES)));
            }
            _mm512_mask_storeu_ps(to, first, sum[r][0]);
            _mm512_mask_storeu_ps(to + LANES, second, sum[r][1]);
        }
}

/* `tile` bytes from 12 rows to the next. */
INLINE void multiply_panels(size_t rows, size_t cols, size_t pairs, const char *a, size_t tile, size_t row, size_t step,
                            const pair *b, float beta, ptrdiff_t least, float *c, size_t ldc)
{
    for (size_t j = 0; j < cols; j += COLS, b += pairs * COLS)
        for (size_t i = 0; i < rows; i += ROWS) {
            if ((ptrdiff_t)j + COLS - 1 - (ptrdiff_t)i < least)
                break;
            __m512 sum[ROWS][2];
            /* C is far larger than the cache: its lines come while the sums are made. */
            for (size_t r = 0; r < calm_size_min(rows - i, ROWS); r++) {
                __builtin_prefetch(c + (i + r) * ldc + j, 1);
                __builtin_prefetch(c + (i + r) * ldc + j + LANES, 1);
            }
            sum_pairs(a + i / ROWS * tile, row, step, pairs, b, sum);
            put_sums(sum, calm_size_min(rows - i, ROWS), calm_size_min(cols - j, COLS), beta, c + i * ldc + j, ldc);
        }
}

TARGET static void multiply(calm_product_form form, size_t rows, size_t cols, size_t terms, const void *a,
                            const void *b, float beta, ptrdiff_t least, float *c,
                            size_t ldc)
{
    const size_t pairs = pairs_of(terms), panel = pairs * ROWS * sizeof(pair);
    if (form == CALM_PRODUCT_TN)
        multiply_panels(rows, cols, pairs, a, panel, sizeof(pair), ROWS * sizeof(pair), b, beta, least,
                        c, ldc);
    else
        multiply_panels(rows, cols, pairs, a, ROWS * ROW_BYTES, ROW_BYTES, sizeof(pair), b, beta, least, c,
                        ldc);
}

/* Sixteen words are written of the last twelve: a row of A has room for that. */
static const calm_bf16_kernel native = {BLOCK_ROWS, ROW_BYTES, sizeof(pair) / 2, pack_rows, pack_cols, multiply};

const calm_bf16_kernel *calm_bf16_native(void)
{
    return __builtin_cpu_supports("avx512bf16") ? &native : NULL;
}

#else

const calm_bf16_kernel *calm_bf16_native(void)
{
    return NULL;
}

#endif
