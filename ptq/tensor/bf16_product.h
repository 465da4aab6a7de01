/* Matrix products with bfloat16 operands and float32 sums: each value is rounded to one bfloat16, as in tools that
 * hold a model in bfloat16, or to the sum of two, which keeps 16 bits of mantissa.
 *
 * CPUs with AVX512-BF16 multiply bfloat16 at twice the rate of float32, those with AMX at ten times.  calm's
 * kernels are used if OpenBLAS runs its SkylakeX, SapphireRapids (AMX before AVX512-BF16) or Cooperlake
 * (AVX512-BF16) kernels.  With any other kernel family, operands are rounded to one bfloat16 and OpenBLAS multiplies
 * in float32, which is a little slower than without rounding.
 *
 * With two parts (x = x1 + x2) the product is x1 y1 + x1 y2 + x2 y1, so each term has a relative error of at most 3
 * * 2^-18 (compute mode FLOAT_TO_BF16X2 of Intel's oneMKL).  It takes 0.35 to 0.5 of the time of float32; products
 * with few columns or terms, where it would be slower, use float32. */
#pragma once

#include "ptq/tensor/product.h"

/* Two-part products with at most this many columns or terms are computed in float32, which is as fast there and
 * more accurate: packing the rows costs too much for few columns or terms.  The number of rows (tokens that are
 * computed together) does not matter, so that a token has the same bytes in any batch; no piece of a product has so
 * few columns (product.h). */
#define CALM_BF16_FEW_COLS  ((size_t)16)
#define CALM_BF16_FEW_TERMS ((size_t)4)

/* Returns whether the CPU has products of such operands; false for float32. */
bool calm_bf16_is_fast(calm_operands operands);

/* Returns the operand type of `auto`: two parts if the CPU multiplies these, else float32. */
calm_operands calm_bf16_auto(void);

/* Returns the operand type of a step of learning and its gradients: one part in place of two.  Its errors of 2^-9 are
 * far below those of a single window's gradient, and the step takes half of the time. */
calm_operands calm_bf16_of_steps(calm_operands operands);

/* Returns the instructions that multiply bfloat16 on this CPU: "AMX", "AVX512-BF16", "float32". */
const char *calm_bf16_instructions(void);

/* Computes C [m, n] = product + beta C on this thread, row-major with these row strides.  ctx->operands is
 * bfloat16, or two parts if calm_bf16_is_fast. */
calm_status calm_bf16_product(calm_ctx *ctx, calm_product_form form, size_t m, size_t n, size_t k, const float *a,
                              size_t lda, const float *b, size_t ldb, float beta, float *c, size_t ldc);

/* Computes the upper triangle of C [n, n] = X^T X, X [k, n]; may overwrite elements below the diagonal. */
calm_status calm_bf16_product_upper(calm_ctx *ctx, size_t n, size_t k, const float *x, size_t ldx, float *c,
                                    size_t ldc);

/* Returns the peak bytes of ctx->scratch of both functions for this many rows of C. */
size_t calm_bf16_scratch_bytes(calm_operands operands, size_t rows);
