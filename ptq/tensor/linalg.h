/* Dense linear algebra over OpenBLAS: the only user of cblas and LAPACKE.
 *
 * Row-major throughout.  Every call runs on one thread (calm_linalg_setup fixes that); parallelism is over
 * tasks, above this file, so results do not depend on the number of threads.  No argument is checked for
 * being finite. */
#pragma once

#include <stddef.h>

#include "ptq/base/context.h"

/* Call once at start: OpenBLAS on one thread per call. */
void calm_linalg_setup(void);

/* OpenBLAS's kernel family and version in words ("OpenBLAS 0.3.21 SkylakeX"); static storage. */
const char *calm_linalg_version(void);

/* The kernel family alone ("SkylakeX"): OpenBLAS picks it by the type of CPU, or by $OPENBLAS_CORETYPE when the program
 * starts; sums are added in another order by each.  Static storage. */
const char *calm_linalg_kernels(void);

/* calm_blas_choose for this process: the family that it should have loaded.  An OpenBLAS that was built for one family
 * has no choice: then the wish, or what is loaded. */
const char *calm_linalg_wanted(const char *wish);

/* Threads that may compute at once, each with a buffer of the library's; INT_MAX: it does not say. */
int calm_linalg_most_threads(void);

/* The library alone ("OpenBLAS 0.3.21"); static storage. */
const char *calm_linalg_release(void);

/* What OpenBLAS holds at most of each thread after products of this many rows and fewer (m of the functions below,
 * and n of triangles and factors): copies of both operands in the order of its kernels, which it keeps. */
size_t calm_linalg_buffer_bytes(size_t rows);

/* C [m, n] = alpha A [m, k] B^T + beta C, B [n, k]: the shape of a linear layer (A = x, B = weight). */
void calm_sgemm_nt(size_t m, size_t n, size_t k, float alpha, const float *a, size_t lda, const float *b,
                   size_t ldb, float beta, float *c, size_t ldc);

/* C [m, n] = alpha A [m, k] B [k, n] + beta C. */
void calm_sgemm_nn(size_t m, size_t n, size_t k, float alpha, const float *a, size_t lda, const float *b,
                   size_t ldb, float beta, float *c, size_t ldc);

/* C [m, n] = alpha A^T B + beta C, A [k, m], B [k, n]: the shape of a cross-product of rows. */
void calm_sgemm_tn(size_t m, size_t n, size_t k, float alpha, const float *a, size_t lda, const float *b,
                   size_t ldb, float beta, float *c, size_t ldc);

/* The same three in double. */
void calm_dgemm_nt(size_t m, size_t n, size_t k, double alpha, const double *a, size_t lda, const double *b,
                   size_t ldb, double beta, double *c, size_t ldc);
void calm_dgemm_nn(size_t m, size_t n, size_t k, double alpha, const double *a, size_t lda, const double *b,
                   size_t ldb, double beta, double *c, size_t ldc);
void calm_dgemm_tn(size_t m, size_t n, size_t k, double alpha, const double *a, size_t lda, const double *b,
                   size_t ldb, double beta, double *c, size_t ldc);

typedef enum calm_product_form {
    CALM_PRODUCT_NT, /* A [m, k] B^T, B [n, k]: a linear layer, y = x W^T          */
    CALM_PRODUCT_NN, /* A [m, k] B [k, n]: what it gives back to its input, dy W  */
    CALM_PRODUCT_TN, /* A^T B, A [k, m], B [k, n]: and to its weight, dy^T x      */
} calm_product_form;

/* C [m, n] = the product of this form + beta C: one of those above. */
void calm_sgemm(calm_product_form form, size_t m, size_t n, size_t k, const float *a, size_t lda, const float *b,
                size_t ldb, float beta, float *c, size_t ldc);
void calm_dgemm(calm_product_form form, size_t m, size_t n, size_t k, const double *a, size_t lda, const double *b,
                size_t ldb, double beta, double *c, size_t ldc);

/* Upper triangle of C [n, n] = alpha A^T A + beta C, A [k, n]; the strict lower triangle is left alone. */
void calm_ssyrk_t(size_t n, size_t k, float alpha, const float *a, size_t lda, float beta, float *c, size_t ldc);
void calm_dsyrk_t(size_t n, size_t k, double alpha, const double *a, size_t lda, double beta, double *c,
                  size_t ldc);

/* Upper triangle of C [n, n] = alpha A A^T + beta C, A [n, k]; the strict lower triangle is left alone. */
void calm_dsyrk_n(size_t n, size_t k, double alpha, const double *a, size_t lda, double beta, double *c, size_t ldc);

/* Copy the upper triangle of a [n, n] to the lower one. */
void calm_dsymmetrize(size_t n, double *a, size_t lda);

/* The same of rows first .. end - 1 alone. */
void calm_dsymmetrize_rows(size_t first, size_t end, double *a, size_t lda);

/* Cholesky factor of a symmetric positive definite a [n, n] in place: a = U^T U, upper triangle; the strict
 * lower triangle is left alone.  CALM_ENUMERIC, naming the pivot, when it is not positive definite. */
calm_status calm_dcholesky_upper(calm_ctx *ctx, size_t n, double *a, size_t lda);

/* The other factor, a = R R^T with R upper, in place; `first` is added to the order in messages, `work` [n, n]. */
calm_status calm_dcholesky_reverse(calm_ctx *ctx, size_t n, size_t first, double *a, size_t lda, double *work);

/* Inverse of an upper triangle u [n, n] in place; `first` as above. */
calm_status calm_dinvert_upper(calm_ctx *ctx, size_t n, size_t first, double *u, size_t ldu);

/* X in place in B [m, n] = X U^T, U [n, n] upper. */
void calm_dsolve_upper_right(size_t m, size_t n, const double *u, size_t ldu, double *b, size_t ldb);

/* B [m, n] = alpha U B, U [m, m] upper; and B [m, n] = B U, U [n, n] upper. */
void calm_dmultiply_upper(size_t m, size_t n, double alpha, const double *u, size_t ldu, double *b, size_t ldb);
void calm_dmultiply_upper_right(size_t m, size_t n, const double *u, size_t ldu, double *b, size_t ldb);

/* Solve (U^T U) X = B in place for B [n, n_rhs] from that factor. */
calm_status calm_dcholesky_solve(calm_ctx *ctx, size_t n, const double *u, size_t ldu, size_t n_rhs, double *b,
                                 size_t ldb);
