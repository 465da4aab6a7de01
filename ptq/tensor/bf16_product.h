/* Products of matrices whose operands are rounded to bfloat16 while their sums are of float32: twice the rate of
 * float32 on CPUs that multiply bfloat16, and what tools that hold a model in bfloat16 compute with.
 *
 * With a family of OpenBLAS that is of such CPUs (Cooperlake, SapphireRapids) a kernel of ours does it; with any other
 * operands are rounded and OpenBLAS multiplies in float32, which gives other last bits as every family does, and takes
 * a little longer than without rounding.  So what is computed follows from the family, as everywhere. */
#pragma once

#include "ptq/tensor/product.h"

/* Is it the faster one here? */
bool calm_bf16_is_fast(void);

/* C [m, n] = the product + beta C, row-major with these row strides, on this thread. */
calm_status calm_bf16_product(calm_ctx *ctx, calm_product_form form, size_t m, size_t n, size_t k, const float *a,
                              size_t lda, const float *b, size_t ldb, float beta, float *c, size_t ldc);

/* Upper triangle of C [n, n] = X^T X, X [k, n]; what is below the diagonal may be written, too. */
calm_status calm_bf16_product_upper(calm_ctx *ctx, size_t n, size_t k, const float *x, size_t ldx, float *c,
                                    size_t ldc);

/* The most that either holds of ctx->scratch, of this many rows of C. */
size_t calm_bf16_scratch_bytes(size_t rows);
