/* Products in tiles: every form against sums in double, and the same bytes for any number of threads. */
#include "ptq/tensor/product.h"

#include "tests/support/product_case.h"

enum { LARGEST = 640 };

/* Also more than there are pieces. */
static const int threads[] = {1, 2, 3, 4, 16};
#define N_THREADS (sizeof threads / sizeof *threads)

/* Sums of k products below 1/4, each rounded: at most (k + 2) 2^-24 k / 4. */
static void check(calm_product_form form, size_t m, size_t n, size_t k, float beta)
{
    const product_case p = new_product(form, m, n, k, beta);
    float *again;
    ck_ok(CALM_NEW(ctx, ctx->out, again, m * p.ldc));
    ctx->n_threads = 1;
    ck_ok(calm_product(ctx, form, m, n, k, p.a, p.lda, p.b, p.ldb, beta, p.c, p.ldc));
    ck_product(&p, CALM_F32, (double)(k + 2) * 0x1p-24 * (double)k / 4);
    for (size_t t = 0; t < N_THREADS; t++) {
        memcpy(again, p.start, m * p.ldc * sizeof *again);
        ctx->n_threads = threads[t];
        ck_ok(calm_product(ctx, form, m, n, k, p.a, p.lda, p.b, p.ldb, beta, again, p.ldc));
        ck_assert(memcmp(p.c, again, m * p.ldc * sizeof *again) == 0);
    }
}

TEST(forms)
{
    calm_linalg_setup();
    for (calm_product_form form = CALM_PRODUCT_NT; form <= CALM_PRODUCT_TN; form++) {
        check(form, 5, 7, 3, 0);
        check(form, 300, 257, 20, 1);
        check(form, 31, LARGEST, 33, 0.5f);
        check(form, 1, 600, 2, 0);
    }
}
END_OF_TEST

/* ---- cuts between rows: the bytes of a single BLAS product ---- */

static double *widened(const float *x, size_t n)
{
    double *out;
    ck_ok(CALM_NEW(ctx, ctx->out, out, n));
    for (size_t i = 0; i < n; i++)
        out[i] = x[i];
    return out;
}

/* Compares calm_product_rows() and calm_dproduct_rows(), on any number of threads, with a single call each. */
static void check_rows(calm_product_form form, size_t m, size_t n, size_t k)
{
    static void (*const singles[])(size_t, size_t, size_t, float, const float *, size_t, const float *, size_t, float,
                                   float *, size_t) = {calm_sgemm_nt, calm_sgemm_nn, calm_sgemm_tn};
    static void (*const doubles[])(size_t, size_t, size_t, double, const double *, size_t, const double *, size_t,
                                   double, double *, size_t) = {calm_dgemm_nt, calm_dgemm_nn, calm_dgemm_tn};
    const size_t lda = form == CALM_PRODUCT_TN ? m : k, ldb = form == CALM_PRODUCT_NT ? k : n;
    const float *a = random_matrix(m * k, 1), *b = random_matrix(n * k, 2), *start = random_matrix(m * n, 3);
    float *c = random_matrix(m * n, 3), *whole = random_matrix(m * n, 3);
    double *da = widened(a, m * k), *db = widened(b, n * k), *dstart = widened(start, m * n),
           *dc = widened(start, m * n), *dwhole = widened(start, m * n);
    singles[form](m, n, k, 1, a, lda, b, ldb, 1, whole, n);
    doubles[form](m, n, k, 1, da, lda, db, ldb, 1, dwhole, n);
    for (size_t t = 0; t < N_THREADS; t++) {
        ctx->n_threads = threads[t];
        memcpy(c, start, m * n * sizeof *c);
        memcpy(dc, dstart, m * n * sizeof *dc);
        ck_ok(calm_product_rows(ctx, form, m, n, k, a, lda, b, ldb, 1, c, n));
        calm_dproduct_rows(ctx, form, m, n, k, da, lda, db, ldb, 1, dc, n);
        ck_assert(memcmp(c, whole, m * n * sizeof *c) == 0);
        ck_assert(memcmp(dc, dwhole, m * n * sizeof *dc) == 0);
    }
}

/* Rows on both sides of a cut, and a single row that would be left after the last. */
TEST(rows)
{
    calm_linalg_setup();
    for (calm_product_form form = CALM_PRODUCT_NT; form <= CALM_PRODUCT_TN; form++) {
        check_rows(form, 1057, 512, 400);
        check_rows(form, 1600, 301, 611);
        check_rows(form, 768, 129, 1500);
        check_rows(form, 512, 1057, 400);
        check_rows(form, 1100, 1000, 460);    /* in columns too, with many threads */
        check_rows(form, 2000, 3, 5);    /* too small to be cut: BLAS would use other kernels for the pieces */
    }
}
END_OF_TEST

/* Compares the triangle in pieces with a single call. */
static void check_upper(size_t n, size_t k)
{
    double *x = widened(random_matrix(n * k, 4), n * k), *c = widened(random_matrix(n * n, 5), n * n),
           *start = widened(random_matrix(n * n, 5), n * n), *whole = widened(random_matrix(n * n, 5), n * n);
    calm_dsyrk_t(n, k, 1, x, n, 1, whole, n);
    for (size_t t = 0; t < N_THREADS; t++) {
        ctx->n_threads = threads[t];
        memcpy(c, start, n * n * sizeof *c);
        calm_dproduct_upper(ctx, n, k, x, n, c, n);
        ck_assert(memcmp(c, whole, n * n * sizeof *c) == 0);    /* below the diagonal nothing is written */
    }
}

TEST(upper)
{
    calm_linalg_setup();
    check_upper(1040, 256);
    check_upper(432, 256);
    check_upper(433, 256);    /* not cut, nor are the next two */
    check_upper(512, 457);
    check_upper(300, 100);    /* too small to be cut */
    check_upper(7, 3);
}
END_OF_TEST

/* Empty products are no error. */
TEST(empty)
{
    ck_ok(calm_product(ctx, CALM_PRODUCT_NN, 0, 4, 2, NULL, 2, NULL, 4, 0, NULL, 4));
    ck_ok(calm_product(ctx, CALM_PRODUCT_NN, 4, 0, 2, NULL, 2, NULL, 0, 0, NULL, 0));
    ck_ok(calm_product_rows(ctx, CALM_PRODUCT_NN, 0, 4, 2, NULL, 2, NULL, 4, 0, NULL, 4));
    calm_dproduct_rows(ctx, CALM_PRODUCT_NN, 4, 0, 2, NULL, 2, NULL, 0, 0, NULL, 0);
    calm_dproduct_upper(ctx, 0, 2, NULL, 2, NULL, 0);
}
END_OF_TEST

int main(void)
{
    return run_tests("product", (const TTest *[]){forms, rows, upper, empty, NULL});
}
