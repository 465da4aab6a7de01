/* One product of matrices over several threads: cut into tiles, each computed whole by one of them.
 *
 * The tiles follow from the sizes alone and none divides a sum, so the bytes are the same for any number of threads.
 * Those of calm_sgemm_* may differ in the last place where there is more than one tile: some of BLAS's kernels add in
 * another order at the edge of a product. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/tensor/linalg.h"

/* Side of the pieces that cut `n` into as few as there must be, of one size: at most `most`, but for being a multiple
 * of `step`; of nothing one step. */
static inline size_t calm_product_side(size_t n, size_t most, size_t step)
{
    const size_t pieces = n ? (n - 1) / most + 1 : 1, side = (n + pieces - 1) / pieces;
    return calm_size_max((side + step - 1) / step, 1) * step;
}

/* C [m, n] = the product + beta C, row-major with these row strides, on this thread: as calm_sgemm, or with
 * both operands as ctx->operands says. */
calm_status calm_multiply(calm_ctx *ctx, calm_product_form form, size_t m, size_t n, size_t k, const float *a,
                          size_t lda, const float *b, size_t ldb, float beta, float *c, size_t ldc);

/* Upper triangle of C [n, n] = X^T X, X [k, n], likewise; what is below the diagonal may be written, too. */
calm_status calm_multiply_upper(calm_ctx *ctx, size_t n, size_t k, const float *x, size_t ldx, float *c, size_t ldc);

/* What the two hold of ctx->scratch, of this many rows of C. */
size_t calm_multiply_scratch_bytes(calm_operands operands, size_t rows);

/* C [m, n] = the product + beta C on ctx's threads, in float32 also where ctx->operands is CALM_OPERANDS_BF16. */
calm_status calm_product(calm_ctx *ctx, calm_product_form form, size_t m, size_t n, size_t k, const float *a,
                         size_t lda, const float *b, size_t ldb, float beta, float *c, size_t ldc);

/* ---- cut between rows and columns ----
 *
 * Each sum of a product is one of BLAS's inner loop, whichever rows and columns of C are computed with it, as long as
 * these begin at a multiple of what the kernels take at once: so these have the bytes of one product of calm_multiply
 * or calm_dgemm_*, for any number of threads (tests/unit/test_product.c, with every family of kernels). */

/* Rows of a piece are a multiple of this: what the kernels of all families take at once divides it (4, 8, 12, 16). */
#define CALM_PRODUCT_ROW_STEP ((size_t)48)
/* The same of columns, for the kernels that allow cutting them: calm_product_any_columns. */
#define CALM_PRODUCT_COLUMN_STEP ((size_t)64)
/* No piece is below this: BLAS has other kernels for small products (up to 1e6 on x86-64), whose order is another. */
#define CALM_PRODUCT_LEAST ((size_t)1 << 21)

/* May columns be cut with the kernels of this process?  calm_blas_any_columns. */
bool calm_product_any_columns(void);

/* As calm_multiply, on ctx's threads: in as many pieces as they need. */
calm_status calm_product_rows(calm_ctx *ctx, calm_product_form form, size_t m, size_t n, size_t k, const float *a,
                              size_t lda, const float *b, size_t ldb, float beta, float *c, size_t ldc);

/* The same in double. */
void calm_dproduct_rows(calm_ctx *ctx, calm_product_form form, size_t m, size_t n, size_t k, const double *a,
                        size_t lda, const double *b, size_t ldb, double beta, double *c, size_t ldc);

/* Upper triangle of C [n, n] += X^T X, X [k, n]: half the work of the whole product, with the bytes of calm_dsyrk_t. */
void calm_dproduct_upper(calm_ctx *ctx, size_t n, size_t k, const double *x, size_t ldx, double *c, size_t ldc);
