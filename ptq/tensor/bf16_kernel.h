/* The inner part of a bfloat16 matrix product: packed blocks of both operands, and their product.  bf16_product.c cuts
 * a product into such blocks; bf16_native.c has the instructions of CPUs that multiply bfloat16. */
#pragma once

#include "ptq/tensor/product.h"

/* Most columns of C and terms of their sums in a block, whose packed operands stay in the second and third level of the
 * cache.  Buffers are of a multiple of this many rows and columns, which what a kernel takes at once divides. */
#define CALM_BF16_COLS  ((size_t)2048)
#define CALM_BF16_TERMS ((size_t)512)
#define CALM_BF16_ROW_STEP ((size_t)48)
#define CALM_BF16_COL_STEP ((size_t)32)

typedef struct calm_bf16_kernel {
    size_t rows;       /* most rows of C in a block                                           */
    size_t row_bytes;  /* of a packed row of A, at most                                       */
    size_t term_bytes; /* of a term of a packed column of B, an even number of terms          */
    /* Pack `rows` rows of op(A), and `cols` columns of op(B), of `terms` terms from these addresses, rounded to
     * bfloat16; the operands lie as `form` says. */
    void (*pack_rows)(calm_product_form form, size_t rows, size_t terms, const float *a, size_t lda, void *out);
    void (*pack_cols)(calm_product_form form, size_t cols, size_t terms, const float *b, size_t ldb, void *out);
    /* C [rows, cols] = their product + beta C, where the number of the column is that of the row + `least` or more;
     * other columns may be left out. */
    void (*multiply)(calm_product_form form, size_t rows, size_t cols, size_t terms, const void *a, const void *b,
                     float beta, ptrdiff_t least, float *c, size_t ldc);
} calm_bf16_kernel;

/* That of AVX512-BF16; NULL on CPUs without. */
const calm_bf16_kernel *calm_bf16_native(void);
