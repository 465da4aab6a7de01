/* Matrix products on several threads, divided into tiles that one thread each computes.
 *
 * The tiles depend only on the sizes, and none divides a sum, so the bytes are the same for any number of threads.
 * With more than one tile, results may differ from calm_sgemm_* in the last place: some BLAS kernels add in another
 * order at the edge of a product. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/tensor/linalg.h"

/* Returns the side of the fewest equal pieces that `n` can be cut into, at most `most` before rounding up to a
 * multiple of `step`; `step` for n = 0. */
static inline size_t calm_product_side(size_t n, size_t most, size_t step)
{
    const size_t pieces = n ? (n - 1) / most + 1 : 1, side = (n + pieces - 1) / pieces;
    return calm_size_max((side + step - 1) / step, 1) * step;
}

/* Computes C [m, n] = product + beta C on this thread, row-major with these row strides: calm_sgemm, or with both
 * operands rounded as ctx->operands says. */
calm_status calm_multiply(calm_ctx *ctx, calm_product_form form, size_t m, size_t n, size_t k, const float *a,
                          size_t lda, const float *b, size_t ldb, float beta, float *c, size_t ldc);

/* Computes the upper triangle of C [n, n] = X^T X, X [k, n], likewise; may overwrite elements below the diagonal. */
calm_status calm_multiply_upper(calm_ctx *ctx, size_t n, size_t k, const float *x, size_t ldx, float *c, size_t ldc);

/* Returns the peak bytes of ctx->scratch of both functions for this many rows of C. */
size_t calm_multiply_scratch_bytes(calm_operands operands, size_t rows);

/* Computes C [m, n] = product + beta C on ctx's threads, in float32 also if ctx->operands is CALM_OPERANDS_BF16. */
calm_status calm_product(calm_ctx *ctx, calm_product_form form, size_t m, size_t n, size_t k, const float *a,
                         size_t lda, const float *b, size_t ldb, float beta, float *c, size_t ldc);

/* ---- products divided by rows and columns ----
 *
 * Each sum of a product is computed by one inner loop of BLAS, independent of the rows and columns of C that are
 * computed with it, if these begin at a multiple of the kernels' tile: so the following functions give the bytes of
 * one call of calm_multiply or calm_dgemm_*, for any number of threads (tests/unit/test_product.c, with every
 * kernel family). */

/* Pieces have a multiple of this many rows, which the tiles of all kernel families divide (4, 8, 12, 16). */
#define CALM_PRODUCT_ROW_STEP ((size_t)48)
/* The same for columns, if calm_product_any_columns. */
#define CALM_PRODUCT_COLUMN_STEP ((size_t)64)
/* Smallest number of multiplications of a piece: below about 1e6 (x86-64) BLAS has other kernels with another order
 * of sums. */
#define CALM_PRODUCT_LEAST ((size_t)1 << 21)

/* Returns whether products may be divided by columns in this process: calm_blas_any_columns. */
bool calm_product_any_columns(void);

/* Computes calm_multiply on ctx's threads, in as many pieces as they need. */
calm_status calm_product_rows(calm_ctx *ctx, calm_product_form form, size_t m, size_t n, size_t k, const float *a,
                              size_t lda, const float *b, size_t ldb, float beta, float *c, size_t ldc);

/* Computes the same in double precision. */
void calm_dproduct_rows(calm_ctx *ctx, calm_product_form form, size_t m, size_t n, size_t k, const double *a,
                        size_t lda, const double *b, size_t ldb, double beta, double *c, size_t ldc);

/* Computes the upper triangle of C [n, n] += X^T X, X [k, n]: half the work of the whole product, with the bytes of
 * calm_dsyrk_t. */
void calm_dproduct_upper(calm_ctx *ctx, size_t n, size_t k, const double *x, size_t ldx, double *c, size_t ldc);
