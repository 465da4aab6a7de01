/* One product of matrices over several threads: cut into tiles, each computed whole by one of them.
 *
 * The tiles follow from the sizes alone and none divides a sum, so the bytes are the same for any number of threads.
 * Those of calm_sgemm_* may differ in the last place where there is more than one tile: some of BLAS's kernels add in
 * another order at the edge of a product. */
#ifndef CALM_TENSOR_PRODUCT_H
#define CALM_TENSOR_PRODUCT_H

#include "ptq/base/context.h"

typedef enum calm_product_form {
    CALM_PRODUCT_NT, /* A [m, k] B^T, B [n, k]: a linear layer, y = x W^T          */
    CALM_PRODUCT_NN, /* A [m, k] B [k, n]: what it gives back to its input, dy W  */
    CALM_PRODUCT_TN, /* A^T B, A [k, m], B [k, n]: and to its weight, dy^T x      */
} calm_product_form;

/* C [m, n] = the product + beta C, row-major with these row strides, on ctx's threads. */
calm_status calm_product(calm_ctx *ctx, calm_product_form form, size_t m, size_t n, size_t k, const float *a,
                         size_t lda, const float *b, size_t ldb, float beta, float *c, size_t ldc);

#endif
