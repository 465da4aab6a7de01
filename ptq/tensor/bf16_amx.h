/* bfloat16 products with AMX (TDPBF16PS), for operands of one or two bfloat16 parts: bf16_product.h. */
#pragma once

#include <stdint.h>

#include "ptq/tensor/product.h"

/* Returns whether the CPU has AMX-BF16 and the system lets this process use its registers. */
bool calm_bf16_amx_available(void);

/* Floating-point operations of one TDPBF16PS: 16 by 16 sums of 32 products. */
#define CALM_BF16_AMX_FLOPS (16.0 * 16 * 32 * 2)

/* Executes `times` TDPBF16PS, to measure their rate; does nothing without AMX. */
void calm_bf16_amx_spin(size_t times);

/* Computes C [m, n] = product + beta C on this thread, row-major with these row strides; m and n are not 0.
 * `n_parts`: bfloat16 parts per value, 1 or 2.  `upper`: elements below the diagonal of C may be left out. */
calm_status calm_bf16_amx_product(calm_ctx *ctx, size_t n_parts, calm_product_form form, bool upper, size_t m,
                                  size_t n, size_t k, const float *a, size_t lda, const float *b, size_t ldb,
                                  float beta, float *c, size_t ldc);

/* Returns the peak bytes of ctx->scratch for this many rows of C. */
size_t calm_bf16_amx_scratch_bytes(size_t n_parts, size_t rows);

/* ---- operands packed in advance: packed.h ---- */

/* Lines of an operand (rows of op(A) or columns of op(B)) are packed in panels of this many; each term has 16 bits.
 * Reads start at multiples, both in lines and in terms. */
#define CALM_BF16_AMX_SIDE ((size_t)32)

/* Packs rows of op(A), x [terms, n] if `form` is CALM_PRODUCT_TN, else [n, terms], into panels with room for `across`
 * pairs of terms; rest NULL: one part.  Returns whether any second part is not 0.  Pads lines and terms with zeros to
 * multiples of 32. */
bool calm_bf16_amx_pack_rows(calm_product_form form, size_t n, size_t terms, size_t across, const float *x,
                             size_t ldx, uint32_t *first, uint32_t *rest);

/* Packs columns of op(B) likewise: x [n, terms] if `form` is CALM_PRODUCT_NT, else [terms, n]. */
bool calm_bf16_amx_pack_cols(calm_product_form form, size_t n, size_t terms, size_t across, const float *x, size_t ldx,
                             uint32_t *first, uint32_t *rest);

/* Packed panels, starting at some line and term; rest NULL: no second part, or zeros only. */
typedef struct calm_bf16_panels {
    const uint32_t *first, *rest;
    size_t across;
} calm_bf16_panels;

/* Computes C [m, n] = product of packed operands + beta C, with the bytes of calm_bf16_amx_product; m, n and k are
 * not 0.  Its peak of ctx->scratch is not larger. */
calm_status calm_bf16_amx_packed(calm_ctx *ctx, size_t m, size_t n, size_t k, const calm_bf16_panels *a,
                                 const calm_bf16_panels *b, float beta, float *c, size_t ldc);
