/* Products of matrices whose operands are bfloat16 while their sums are of float32: each value rounded to one bfloat16,
 * as tools compute that hold a model in bfloat16, or to the sum of two, which keeps 16 bits.
 *
 * CPUs with AVX512-BF16 multiply bfloat16 at twice the rate of float32, those with AMX at ten times.  Kernels of ours
 * do it where OpenBLAS's kernels are SkylakeX, SapphireRapids (AMX before AVX512-BF16) or Cooperlake (AVX512-BF16).
 * With any other family one bfloat16 is rounded and OpenBLAS multiplies in float32, which takes a little longer than
 * without rounding.
 *
 * Of two parts (x = x1 + x2, bfloat16 both) the product is x1 y1 + x1 y2 + x2 y1, so each term is off by at most
 * 3 * 2^-18 of its size (compute mode FLOAT_TO_BF16X2 of Intel's oneMKL).  It takes 0.35 to 0.5 of the time of float32;
 * those of few columns or terms, where it would take longer, are of float32. */
#pragma once

#include "ptq/tensor/product.h"

/* Products of two parts that BLAS computes as soon in float32, which is nearer: those of a register's columns, whose
 * rows are packed for few products, and of a few terms.  The number of rows, which says how many tokens are computed
 * together, does not decide, so that a token has the same bytes among any others; no piece of a product has so few
 * columns (product.h). */
#define CALM_BF16_FEW_COLS  ((size_t)16)
#define CALM_BF16_FEW_TERMS ((size_t)4)

/* Does the CPU multiply such operands?  false for float32. */
bool calm_bf16_is_fast(calm_operands operands);

/* What `auto` is: two parts where the CPU multiplies these, else float32. */
calm_operands calm_bf16_auto(void);

/* What multiplies bfloat16 here: "AMX", "AVX512-BF16", "float32". */
const char *calm_bf16_instructions(void);

/* C [m, n] = the product + beta C, row-major with these row strides, on this thread, of operands as ctx->operands says:
 * bfloat16, of two parts only where that is fast. */
calm_status calm_bf16_product(calm_ctx *ctx, calm_product_form form, size_t m, size_t n, size_t k, const float *a,
                              size_t lda, const float *b, size_t ldb, float beta, float *c, size_t ldc);

/* Upper triangle of C [n, n] = X^T X, X [k, n]; what is below the diagonal may be written, too. */
calm_status calm_bf16_product_upper(calm_ctx *ctx, size_t n, size_t k, const float *x, size_t ldx, float *c,
                                    size_t ldc);

/* The most that either holds of ctx->scratch, of this many rows of C. */
size_t calm_bf16_scratch_bytes(calm_operands operands, size_t rows);
