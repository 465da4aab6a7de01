/* Inner kernel of a bfloat16 matrix product: packs blocks of both operands and multiplies them.  bf16_product.c
 * divides a product into such blocks; bf16_native.c implements the kernel with AVX512-BF16. */
#pragma once

#include "ptq/tensor/product.h"

/* Largest columns of C and terms (k) of a block, whose packed operands fit in the second and third level of cache.
 * Buffers have a multiple of the step of rows and columns, which every kernel's tile divides. */
#define CALM_BF16_COLS  ((size_t)2048)
#define CALM_BF16_TERMS ((size_t)512)
#define CALM_BF16_ROW_STEP ((size_t)48)
#define CALM_BF16_COL_STEP ((size_t)32)

typedef struct calm_bf16_kernel {
    size_t rows;       /* largest number of rows of C in a block                              */
    size_t row_bytes;  /* upper bound of the bytes of a packed row of A                       */
    size_t term_bytes; /* bytes per term of a packed column of B, for an even number of terms */
    /* Pack `rows` rows of op(A), and `cols` columns of op(B), with `terms` terms each, rounded to bfloat16; `form`
     * is the layout of the operands. */
    void (*pack_rows)(calm_product_form form, size_t rows, size_t terms, const float *a, size_t lda, void *out);
    void (*pack_cols)(calm_product_form form, size_t cols, size_t terms, const float *b, size_t ldb, void *out);
    /* Computes C [rows, cols] = product + beta C for the elements whose column index is at least row index +
     * `least`; other elements may be left out. */
    void (*multiply)(calm_product_form form, size_t rows, size_t cols, size_t terms, const void *a, const void *b,
                     float beta, ptrdiff_t least, float *c, size_t ldc);
} calm_bf16_kernel;

/* Returns the AVX512-BF16 kernel; NULL if the CPU has no AVX512-BF16. */
const calm_bf16_kernel *calm_bf16_native(void);
