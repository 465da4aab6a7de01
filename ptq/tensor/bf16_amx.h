/* Products of bfloat16 by AMX (TDPBF16PS), for operands of one bfloat16 or of the sum of two: bf16_product.h. */
#pragma once

#include "ptq/tensor/product.h"

/* Has the CPU AMX-BF16, and does the system let this process use its registers? */
bool calm_bf16_amx_is_there(void);

/* Operations of one TDPBF16PS: 16 by 16 sums of 32 products. */
#define CALM_BF16_AMX_FLOPS (16.0 * 16 * 32 * 2)

/* Do `times` of them, and nothing else; nothing without AMX. */
void calm_bf16_amx_spin(size_t times);

/* C [m, n] = the product + beta C, row-major with these row strides, on this thread; m and n are not 0.  `n_parts`: of
 * a value, 1 or 2.  `upper`: what is below the diagonal of C may be left out. */
calm_status calm_bf16_amx_product(calm_ctx *ctx, size_t n_parts, calm_product_form form, bool upper, size_t m,
                                  size_t n, size_t k, const float *a, size_t lda, const float *b, size_t ldb,
                                  float beta, float *c, size_t ldc);

/* The most that it holds of ctx->scratch, of this many rows of C. */
size_t calm_bf16_amx_scratch_bytes(size_t n_parts, size_t rows);
