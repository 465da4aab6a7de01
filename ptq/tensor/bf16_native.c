/* Products of bfloat16 with AVX512-BF16: VDPBF16PS adds two products to each of sixteen float32 sums.
 *
 * 12 rows by 32 columns of sums stay in registers over all pairs of a panel; a panel of B stays in the L1 cache
 * over all rows of A. If A is stored with terms as rows, it is packed in panels of 12 rows, [pairs][12]. */
#include "ptq/tensor/bf16_kernel.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include "ptq/tensor/bf16_pack.h"

#define ROWS 12
/* Bytes from a row of A to the next: a power of two would map the rows to few cache sets. */
#define ROW_BYTES (CALM_BF16_TERMS * 2 + 64)

static size_t pairs_of(size_t terms)
{
    return (terms + 1) / 2;
}

/* Packs rows contiguously, up to a multiple of ROWS. */
TARGET static void pack_plain_rows(size_t n, size_t terms, const float *a, size_t lda, char *out)
{
    parts both;
    for (size_t i = 0; i < n; i++, out += ROW_BYTES)
        for (size_t t = 0; t < terms; t += 2 * LANES) {
            round_pairs(a + i * lda + t, calm_size_min(terms - t, 2 * LANES), false, &both);
            _mm512_storeu_si512(out + 2 * t, both.first);
        }
    for (size_t i = n; i % ROWS; i++, out += ROW_BYTES)
        memset(out, 0, 4 * pairs_of(terms));
}

TARGET static void pack_rows(calm_product_form form, size_t rows, size_t terms, const float *a, size_t lda, void *out)
{
    if (form == CALM_PRODUCT_TN)
        pack_terms(rows, terms, pairs_of(terms), pairs_of(terms), a, lda, ROWS, out, NULL);
    else
        pack_plain_rows(rows, terms, a, lda, out);
}

TARGET static void pack_cols(calm_product_form form, size_t cols, size_t terms, const float *b, size_t ldb, void *out)
{
    pack_panels(form, cols, terms, pairs_of(terms), pairs_of(terms), b, ldb, out, NULL);
}

/* Computes sum = 12 rows of `a` times a panel of B; `row` and `step` are the bytes between rows and between pairs. */
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

/* Computes C [rows, cols] = sums + beta C. */
INLINE void put_sums(__m512 sum[ROWS][2], size_t rows, size_t cols, float beta, float *c, size_t ldc)
{
#pragma GCC unroll 12
    for (size_t r = 0; r < ROWS; r++)
        if (r < rows) {
            put_line(sum[r][0], cols, beta, c + r * ldc);
            if (cols > LANES)
                put_line(sum[r][1], cols - LANES, beta, c + r * ldc + LANES);
        }
}

/* Multiplies packed rows and columns; `tile` is the bytes from 12 rows to the next. */
INLINE void multiply_panels(size_t rows, size_t cols, size_t pairs, const char *a, size_t tile, size_t row, size_t step,
                            const pair *b, float beta, ptrdiff_t least, float *c, size_t ldc)
{
    for (size_t j = 0; j < cols; j += COLS, b += pairs * COLS)
        for (size_t i = 0; i < rows; i += ROWS) {
            const size_t n_rows = calm_size_min(rows - i, ROWS);
            if ((ptrdiff_t)j + COLS - 1 - (ptrdiff_t)i < least)
                break;
            __m512 sum[ROWS][2];
            /* Prefetches C, which is far larger than the cache, while the sums are computed. */
            for (size_t r = 0; r < n_rows; r++) {
                __builtin_prefetch(c + (i + r) * ldc + j, 1);
                __builtin_prefetch(c + (i + r) * ldc + j + LANES, 1);
            }
            sum_pairs(a + i / ROWS * tile, row, step, pairs, b, sum);
            put_sums(sum, n_rows, calm_size_min(cols - j, COLS), beta, c + i * ldc + j, ldc);
        }
}

TARGET static void multiply(calm_product_form form, size_t rows, size_t cols, size_t terms, const void *a,
                            const void *b, float beta, ptrdiff_t least, float *c, size_t ldc)
{
    const size_t pairs = pairs_of(terms), panel = pairs * ROWS * sizeof(pair);
    if (form == CALM_PRODUCT_TN)
        multiply_panels(rows, cols, pairs, a, panel, sizeof(pair), ROWS * sizeof(pair), b, beta, least, c, ldc);
    else
        multiply_panels(rows, cols, pairs, a, ROWS * ROW_BYTES, ROW_BYTES, sizeof(pair), b, beta, least, c, ldc);
}

/* pack_terms() last stores sixteen words of which twelve are used: ROW_BYTES leaves room for the others. */
static const calm_bf16_kernel native = {384, ROW_BYTES, sizeof(pair) / 2, pack_rows, pack_cols, multiply};

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
