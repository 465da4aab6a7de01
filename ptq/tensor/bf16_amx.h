/* Products of bfloat16 by AMX (TDPBF16PS), for operands of one bfloat16 or of the sum of two: bf16_product.h. */
#pragma once

#include <stdint.h>

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

/* ---- operands that were packed before: packed.h ---- */

/* Lines of an operand, rows of op(A) or columns of op(B), are in panels of this many; each term has 16 bits.  Lines and
 * terms that are read begin at multiples. */
#define CALM_BF16_AMX_SIDE ((size_t)32)

/* Rows x [n, terms] of op(A) into panels with room for `across` pairs of terms; rest NULL: one part.  Says whether any
 * second part is not 0.  What is missing of the last 32 rows and of the last 32 terms becomes 0. */
bool calm_bf16_amx_pack_rows(size_t n, size_t terms, size_t across, const float *x, size_t ldx, uint32_t *first,
                             uint32_t *rest);

/* The same of columns of op(B): x [n, terms] where `form` is CALM_PRODUCT_NT, else [terms, n]. */
bool calm_bf16_amx_pack_cols(calm_product_form form, size_t n, size_t terms, size_t across, const float *x, size_t ldx,
                             uint32_t *first, uint32_t *rest);

/* Panels, from a line and a term on; rest NULL: there is none, or it is 0 everywhere. */
typedef struct calm_bf16_panels {
    const uint32_t *first, *rest;
    size_t across;
} calm_bf16_panels;

/* C [m, n] = the product of packed operands + beta C, m, n and k not 0: the bytes of calm_bf16_amx_product.  Holds of
 * ctx->scratch no more than that. */
calm_status calm_bf16_amx_packed(calm_ctx *ctx, size_t m, size_t n, size_t k, const calm_bf16_panels *a,
                                 const calm_bf16_panels *b, float beta, float *c, size_t ldc);
