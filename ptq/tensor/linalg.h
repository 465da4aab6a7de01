/* Dense linear algebra over OpenBLAS: the only user of cblas and LAPACKE.
 *
 * All matrices are row-major.  Every call runs on one thread (calm_linalg_setup sets that); callers are parallel
 * over tasks, so results do not depend on the number of threads.  Arguments are not checked for NaN and infinity. */
#pragma once

#include <stddef.h>

#include "ptq/base/context.h"

/* Sets OpenBLAS to one thread per call; call it once at start. */
void calm_linalg_setup(void);

/* Returns OpenBLAS's version and kernel family ("OpenBLAS 0.3.21 SkylakeX"); static storage. */
const char *calm_linalg_version(void);

/* Returns the kernel family alone ("SkylakeX"), which OpenBLAS selects by the CPU model, or by $OPENBLAS_CORETYPE
 * at program start; each family has a different order of sums.  Static storage. */
const char *calm_linalg_kernels(void);

/* Applies calm_blas_choose to this process: returns the family that it should have loaded.  An OpenBLAS that was
 * built for a single family has no choice: then returns the wish, or the loaded family. */
const char *calm_linalg_wanted(const char *wish);

/* Returns the number of threads that may call OpenBLAS at once, each with one of its buffers; INT_MAX: unknown. */
int calm_linalg_most_threads(void);

/* Returns the version alone ("OpenBLAS 0.3.21"); static storage. */
const char *calm_linalg_release(void);

/* Returns an upper bound of the bytes per thread that OpenBLAS touches and keeps in products of at most this many
 * rows (m of the functions below; n for triangles and factors): packed copies of both operands. */
size_t calm_linalg_buffer_bytes(size_t rows);

/* Computes C [m, n] = alpha A [m, k] B^T + beta C, B [n, k]: the shape of a linear layer (A = x, B = weight). */
void calm_sgemm_nt(size_t m, size_t n, size_t k, float alpha, const float *a, size_t lda, const float *b,
                   size_t ldb, float beta, float *c, size_t ldc);

/* Computes C [m, n] = alpha A [m, k] B [k, n] + beta C. */
void calm_sgemm_nn(size_t m, size_t n, size_t k, float alpha, const float *a, size_t lda, const float *b,
                   size_t ldb, float beta, float *c, size_t ldc);

/* Computes C [m, n] = alpha A^T B + beta C, A [k, m], B [k, n]: the shape of a cross-product of rows. */
void calm_sgemm_tn(size_t m, size_t n, size_t k, float alpha, const float *a, size_t lda, const float *b,
                   size_t ldb, float beta, float *c, size_t ldc);

/* Compute the same three products in double precision. */
void calm_dgemm_nt(size_t m, size_t n, size_t k, double alpha, const double *a, size_t lda, const double *b,
                   size_t ldb, double beta, double *c, size_t ldc);
void calm_dgemm_nn(size_t m, size_t n, size_t k, double alpha, const double *a, size_t lda, const double *b,
                   size_t ldb, double beta, double *c, size_t ldc);
void calm_dgemm_tn(size_t m, size_t n, size_t k, double alpha, const double *a, size_t lda, const double *b,
                   size_t ldb, double beta, double *c, size_t ldc);

typedef enum calm_product_form {
    CALM_PRODUCT_NT, /* A [m, k] B^T, B [n, k]: a linear layer, y = x W^T          */
    CALM_PRODUCT_NN, /* A [m, k] B [k, n]: gradient of its input, dy W            */
    CALM_PRODUCT_TN, /* A^T B, A [k, m], B [k, n]: gradient of its weight, dy^T x */
} calm_product_form;

/* Compute C [m, n] = the product of this form + beta C, with one of the functions above. */
void calm_sgemm(calm_product_form form, size_t m, size_t n, size_t k, const float *a, size_t lda, const float *b,
                size_t ldb, float beta, float *c, size_t ldc);
void calm_dgemm(calm_product_form form, size_t m, size_t n, size_t k, const double *a, size_t lda, const double *b,
                size_t ldb, double beta, double *c, size_t ldc);

/* Compute the upper triangle of C [n, n] = alpha A^T A + beta C, A [k, n]; leave the strict lower triangle alone. */
void calm_ssyrk_t(size_t n, size_t k, float alpha, const float *a, size_t lda, float beta, float *c, size_t ldc);
void calm_dsyrk_t(size_t n, size_t k, double alpha, const double *a, size_t lda, double beta, double *c,
                  size_t ldc);

/* Computes the upper triangle of C [n, n] = alpha A A^T + beta C, A [n, k]; leaves the strict lower triangle alone. */
void calm_dsyrk_n(size_t n, size_t k, double alpha, const double *a, size_t lda, double beta, double *c, size_t ldc);

/* Copies the upper triangle of a [n, n] to the lower one. */
void calm_dsymmetrize(size_t n, double *a, size_t lda);

/* Does the same for rows first .. end - 1. */
void calm_dsymmetrize_rows(size_t first, size_t end, double *a, size_t lda);

/* Computes the Cholesky factor of a symmetric positive definite a [n, n] in place: a = U^T U, upper triangle;
 * leaves the strict lower triangle alone.  CALM_ENUMERIC, naming the pivot, when `a` is not positive definite. */
calm_status calm_dcholesky_upper(calm_ctx *ctx, size_t n, double *a, size_t lda);

/* Computes the reverse Cholesky factor in place: a = R R^T, R upper; messages name pivot `first` + index; `work`
 * [n, n]. */
calm_status calm_dcholesky_reverse(calm_ctx *ctx, size_t n, size_t first, double *a, size_t lda, double *work);

/* Inverts an upper triangle u [n, n] in place; `first` as above. */
calm_status calm_dinvert_upper(calm_ctx *ctx, size_t n, size_t first, double *u, size_t ldu);

/* Solves X U^T = B in place in B [m, n], U [n, n] upper. */
void calm_dsolve_upper_right(size_t m, size_t n, const double *u, size_t ldu, double *b, size_t ldb);

/* Compute B [m, n] = alpha U B, U [m, m] upper; and B [m, n] = B U, U [n, n] upper. */
void calm_dmultiply_upper(size_t m, size_t n, double alpha, const double *u, size_t ldu, double *b, size_t ldb);
void calm_dmultiply_upper_right(size_t m, size_t n, const double *u, size_t ldu, double *b, size_t ldb);

/* Solves (U^T U) X = B in place in B [n, n_rhs], from the Cholesky factor. */
calm_status calm_dcholesky_solve(calm_ctx *ctx, size_t n, const double *u, size_t ldu, size_t n_rhs, double *b,
                                 size_t ldb);
