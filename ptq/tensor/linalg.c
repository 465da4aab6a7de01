/* Dense linear algebra with OpenBLAS; the only file that includes cblas.h and lapacke.h. */
#include "ptq/tensor/linalg.h"

#include <cblas.h>
#include <lapacke.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/tensor/blas_family.h"

void calm_linalg_setup(void)
{
    openblas_set_num_threads(1);
}

const char *calm_linalg_version(void)
{
    static char text[128];
    snprintf(text, sizeof text, "%s, kernels %s", openblas_get_config(), openblas_get_corename());
    return text;
}

const char *calm_linalg_kernels(void)
{
    return openblas_get_corename();
}

/* Returns whether OpenBLAS was built with several kernel families, of which it chooses one when it is loaded. */
static bool has_families(void)
{
    return strstr(openblas_get_config(), "DYNAMIC_ARCH") != NULL;
}

const char *calm_linalg_wanted(const char *wish)
{
    const char *loaded = calm_linalg_kernels();
    if (!has_families())
        return wish ? wish : loaded;
    return calm_blas_choose(calm_cpu_features(), loaded, wish, getenv(CALM_BLAS_VARIABLE));
}

int calm_linalg_most_threads(void)
{
    static const char word[] = "MAX_THREADS=";
    const char *at = strstr(openblas_get_config(), word);
    const long built_for = at ? strtol(at + strlen(word), NULL, 10) : 0;
    /* OpenBLAS has two buffers for each thread that it was built for, and crashes some hundred threads above. */
    return built_for > 0 && built_for <= INT_MAX / 2 ? 2 * (int)built_for : INT_MAX;
}

const char *calm_linalg_release(void)
{
    static char text[64];
    const char *config = openblas_get_config(), *space = strchr(config, ' ');
    const size_t words = space ? (size_t)(space + 1 - config) + strcspn(space + 1, " ") : strlen(config);
    snprintf(text, sizeof text, "%.*s", (int)words, config);
    return text;
}

/* A buffer holds at most P rows of Q terms of one operand, and Q terms of every row of the other; a product in
 * double takes more than one in float.  Measured with 0.3.21 and products of up to 12,288 rows: in double, Haswell
 * and Zen use 256 terms, SkylakeX 384, and none more than 768 rows of the first operand.  OpenBLAS's buffer has 128
 * MiB in total. */
#define BUFFER_BYTES ((size_t)128 << 20)
#define BUFFER_ROWS  ((size_t)768)
#define FEW_TERMS    ((size_t)256)
#define MANY_TERMS   ((size_t)384)

size_t calm_linalg_buffer_bytes(size_t rows)
{
    const char *family = calm_linalg_kernels();
    const bool few = strcmp(family, "Haswell") == 0 || strcmp(family, "Zen") == 0;
    const size_t row = (few ? FEW_TERMS : MANY_TERMS) * sizeof(double);
    return rows < BUFFER_BYTES / row - BUFFER_ROWS ? (BUFFER_ROWS + rows) * row : BUFFER_BYTES;
}

/* Parameters of a product C [m, n] = alpha op(A) op(B) + beta C, and BLAS's arguments. */
#define PRODUCT(real)                                                                                                  \
    size_t m, size_t n, size_t k, real alpha, const real *a, size_t lda, const real *b, size_t ldb, real beta,         \
        real *c, size_t ldc
#define SIZES_AND_DATA (int)m, (int)n, (int)k, alpha, a, (int)lda, b, (int)ldb, beta, c, (int)ldc

void calm_sgemm_nt(PRODUCT(float))
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, SIZES_AND_DATA);
}

void calm_sgemm_nn(PRODUCT(float))
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, SIZES_AND_DATA);
}

void calm_sgemm_tn(PRODUCT(float))
{
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, SIZES_AND_DATA);
}

void calm_dgemm_nt(PRODUCT(double))
{
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, SIZES_AND_DATA);
}

void calm_dgemm_nn(PRODUCT(double))
{
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, SIZES_AND_DATA);
}

void calm_dgemm_tn(PRODUCT(double))
{
    cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, SIZES_AND_DATA);
}

static CBLAS_TRANSPOSE first_of(calm_product_form form)
{
    return form == CALM_PRODUCT_TN ? CblasTrans : CblasNoTrans;
}

static CBLAS_TRANSPOSE second_of(calm_product_form form)
{
    return form == CALM_PRODUCT_NT ? CblasTrans : CblasNoTrans;
}

void calm_sgemm(calm_product_form form, size_t m, size_t n, size_t k, const float *a, size_t lda, const float *b,
                size_t ldb, float beta, float *c, size_t ldc)
{
    cblas_sgemm(CblasRowMajor, first_of(form), second_of(form), (int)m, (int)n, (int)k, 1, a, (int)lda, b, (int)ldb,
                beta, c, (int)ldc);
}

void calm_dgemm(calm_product_form form, size_t m, size_t n, size_t k, const double *a, size_t lda, const double *b,
                size_t ldb, double beta, double *c, size_t ldc)
{
    cblas_dgemm(CblasRowMajor, first_of(form), second_of(form), (int)m, (int)n, (int)k, 1, a, (int)lda, b, (int)ldb,
                beta, c, (int)ldc);
}

void calm_ssyrk_t(size_t n, size_t k, float alpha, const float *a, size_t lda, float beta, float *c, size_t ldc)
{
    cblas_ssyrk(CblasRowMajor, CblasUpper, CblasTrans, (int)n, (int)k, alpha, a, (int)lda, beta, c, (int)ldc);
}

void calm_dsyrk_t(size_t n, size_t k, double alpha, const double *a, size_t lda, double beta, double *c, size_t ldc)
{
    cblas_dsyrk(CblasRowMajor, CblasUpper, CblasTrans, (int)n, (int)k, alpha, a, (int)lda, beta, c, (int)ldc);
}

void calm_dsyrk_n(size_t n, size_t k, double alpha, const double *a, size_t lda, double beta, double *c, size_t ldc)
{
    cblas_dsyrk(CblasRowMajor, CblasUpper, CblasNoTrans, (int)n, (int)k, alpha, a, (int)lda, beta, c, (int)ldc);
}

/* Works in tiles: each number of a column of a large matrix is in its own cache line. */
void calm_dsymmetrize_rows(size_t first, size_t end, double *a, size_t lda)
{
    enum { TILE = 32 };
    for (size_t rows = first; rows < end; rows += TILE)
        for (size_t columns = 0; columns <= rows; columns += TILE)
            for (size_t i = rows; i < calm_size_min(rows + TILE, end); i++)
                for (size_t j = columns; j < calm_size_min(columns + TILE, i); j++)
                    a[i * lda + j] = a[j * lda + i];
}

void calm_dsymmetrize(size_t n, double *a, size_t lda)
{
    calm_dsymmetrize_rows(0, n, a, lda);
}

/* A row-major upper triangle is a column-major lower one: LAPACK gets the matrix as it is in memory, so LAPACKE
 * makes no transposed copy. */
calm_status calm_dcholesky_upper(calm_ctx *ctx, size_t n, double *a, size_t lda)
{
    lapack_int info = n ? LAPACKE_dpotrf_work(LAPACK_COL_MAJOR, 'L', (lapack_int)n, a, (lapack_int)lda) : 0;
    if (info > 0)
        return calm_fail(ctx, CALM_ENUMERIC, "Cholesky: the leading minor of order %ld is not positive definite",
                         (long)info);
    return CALM_OK;
}

/* With the order of rows and columns reversed, R is lower triangular, and R R^T is an ordinary Cholesky
 * factorization. */
calm_status calm_dcholesky_reverse(calm_ctx *ctx, size_t n, size_t first, double *a, size_t lda, double *work)
{
    for (size_t i = 0; i < n; i++)
        for (size_t j = i; j < n; j++)
            work[(n - 1 - i) * n + n - 1 - j] = a[i * lda + j];
    /* A row-major lower triangle is a column-major upper one. */
    lapack_int info = n ? LAPACKE_dpotrf_work(LAPACK_COL_MAJOR, 'U', (lapack_int)n, work, (lapack_int)n) : 0;
    if (info > 0)
        return calm_fail(ctx, CALM_ENUMERIC, "Cholesky: the trailing minor from column %zu on is not positive definite",
                         first + n - (size_t)info);
    for (size_t i = 0; i < n; i++)
        for (size_t j = i; j < n; j++)
            a[i * lda + j] = work[(n - 1 - i) * n + n - 1 - j];
    return CALM_OK;
}

calm_status calm_dinvert_upper(calm_ctx *ctx, size_t n, size_t first, double *u, size_t ldu)
{
    lapack_int info = n ? LAPACKE_dtrtri_work(LAPACK_COL_MAJOR, 'L', 'N', (lapack_int)n, u, (lapack_int)ldu) : 0;
    if (info > 0)
        return calm_fail(ctx, CALM_ENUMERIC, "Cholesky: diagonal element %zu of the factor is zero",
                         first + (size_t)info - 1);
    return CALM_OK;
}

void calm_dsolve_upper_right(size_t m, size_t n, const double *u, size_t ldu, double *b, size_t ldb)
{
    cblas_dtrsm(CblasRowMajor, CblasRight, CblasUpper, CblasTrans, CblasNonUnit, (int)m, (int)n, 1.0, u, (int)ldu, b,
                (int)ldb);
}

void calm_dmultiply_upper(size_t m, size_t n, double alpha, const double *u, size_t ldu, double *b, size_t ldb)
{
    cblas_dtrmm(CblasRowMajor, CblasLeft, CblasUpper, CblasNoTrans, CblasNonUnit, (int)m, (int)n, alpha, u, (int)ldu, b,
                (int)ldb);
}

void calm_dmultiply_upper_right(size_t m, size_t n, const double *u, size_t ldu, double *b, size_t ldb)
{
    cblas_dtrmm(CblasRowMajor, CblasRight, CblasUpper, CblasNoTrans, CblasNonUnit, (int)m, (int)n, 1.0, u, (int)ldu, b,
                (int)ldb);
}

calm_status calm_dcholesky_solve(calm_ctx *ctx, size_t n, const double *u, size_t ldu, size_t n_rhs, double *b,
                                 size_t ldb)
{
    (void)ctx;
    /* Solves U^T Y = B, then U X = Y; dtrsm accepts row-major right-hand sides. */
    cblas_dtrsm(CblasRowMajor, CblasLeft, CblasUpper, CblasTrans, CblasNonUnit, (int)n, (int)n_rhs, 1.0, u, (int)ldu,
                b, (int)ldb);
    cblas_dtrsm(CblasRowMajor, CblasLeft, CblasUpper, CblasNoTrans, CblasNonUnit, (int)n, (int)n_rhs, 1.0, u,
                (int)ldu, b, (int)ldb);
    return CALM_OK;
}
