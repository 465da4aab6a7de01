/* Linear algebra against naive loops.
 *
 * The error of one element of alpha A B + beta C over k terms is at most (k + 2) u sum |terms|, with the unit
 * roundoff u, once for the library and once for the loop (Higham, Accuracy and Stability, section 3.1); the loops
 * here sum in long double, so their share is below the library's. */
#include "ptq/tensor/linalg.h"

#include "ptq/base/rng.h"
#include "tests/support/harness.h"

static double *random_doubles(uint64_t stream, size_t n)
{
    double *x = calm_arena_alloc(ctx->scratch, n, sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = calm_rng_normal(5, stream, i);
    return x;
}

static float *to_floats(const double *x, size_t n)
{
    float *y = calm_arena_alloc(ctx->scratch, n, sizeof *y);
    for (size_t i = 0; i < n; i++)
        y[i] = (float)x[i];
    return y;
}

/* A product's operands with row strides wider than the rows; element (i, p) of A and (p, j) of B by shape. */
typedef struct product {
    size_t m, n, k, lda, ldb, ldc;
    bool a_transposed, b_transposed;
    const double *a, *b, *c;    /* rounded to float32, so that both precisions read the same numbers */
} product;

static double *rounded(uint64_t stream, size_t n)
{
    double *x = random_doubles(stream, n);
    for (size_t i = 0; i < n; i++)
        x[i] = (double)(float)x[i];
    return x;
}

static product make_product(size_t m, size_t n, size_t k, bool a_transposed, bool b_transposed)
{
    product p = {m, n, k, (a_transposed ? m : k) + 3, (b_transposed ? k : n) + 2, n + 1, a_transposed, b_transposed,
                 NULL, NULL, NULL};
    p.a = rounded(1, (a_transposed ? k : m) * p.lda);
    p.b = rounded(2, (b_transposed ? n : k) * p.ldb);
    p.c = rounded(3, m * p.ldc);
    return p;
}

/* Compares `got` (elements 0 .. m*ldc-1, with the padding) with alpha A B + beta C. */
static void check_product(const product *p, double alpha, double beta, const double *got, double u)
{
    for (size_t i = 0; i < p->m; i++)
        for (size_t j = 0; j < p->ldc; j++) {
            double start = p->c[i * p->ldc + j];
            if (j >= p->n) {    /* padding is not written */
                ck_assert_double_eq(got[i * p->ldc + j], start);
                continue;
            }
            long double sum = 0, size = 0;
            for (size_t t = 0; t < p->k; t++) {
                double x = p->a_transposed ? p->a[t * p->lda + i] : p->a[i * p->lda + t];
                double y = p->b_transposed ? p->b[j * p->ldb + t] : p->b[t * p->ldb + j];
                sum += (long double)x * y;
                size += fabsl((long double)x * y);
            }
            long double expected = alpha * sum + beta * start;
            long double bound = (long double)(p->k + 4) * u * (fabs(alpha) * size + fabs(beta * start));
            ck_assert_msg(fabsl(got[i * p->ldc + j] - expected) <= bound, "%zu %zu %zu: [%zu, %zu] = %.17g, not %.17Lg",
                          p->m, p->n, p->k, i, j, got[i * p->ldc + j], expected);
        }
}

typedef void sgemm(size_t, size_t, size_t, float, const float *, size_t, const float *, size_t, float, float *, size_t);
typedef void dgemm(size_t, size_t, size_t, double, const double *, size_t, const double *, size_t, double, double *,
                   size_t);

static void check_gemm(sgemm *single, dgemm *full, bool a_transposed, bool b_transposed)
{
    static const size_t shapes[][3] = {{1, 1, 1}, {1, 7, 5}, {5, 1, 3}, {5, 7, 3}, {37, 5, 64}, {33, 65, 129}};
    static const double factors[][2] = {{1, 0}, {-0.5, 1}, {2, 0.25}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t f = 0; f < 3; f++) {
            product p = make_product(shapes[s][0], shapes[s][1], shapes[s][2], a_transposed, b_transposed);
            size_t n_a = (a_transposed ? p.k : p.m) * p.lda, n_b = (b_transposed ? p.n : p.k) * p.ldb;
            size_t n_c = p.m * p.ldc;
            double alpha = factors[f][0], beta = factors[f][1];
            double *c = calm_arena_alloc(ctx->scratch, n_c, sizeof *c);
            memcpy(c, p.c, n_c * sizeof *c);
            full(p.m, p.n, p.k, alpha, p.a, p.lda, p.b, p.ldb, beta, c, p.ldc);
            check_product(&p, alpha, beta, c, 0x1p-53);

            float *c32 = to_floats(p.c, n_c);
            single(p.m, p.n, p.k, (float)alpha, to_floats(p.a, n_a), p.lda, to_floats(p.b, n_b), p.ldb, (float)beta,
                   c32, p.ldc);
            for (size_t i = 0; i < n_c; i++)
                c[i] = c32[i];
            check_product(&p, alpha, beta, c, 0x1p-24);
        }
}

TEST(gemm_nt)
{
    check_gemm(calm_sgemm_nt, calm_dgemm_nt, false, true);
}
END_OF_TEST

TEST(gemm_nn)
{
    check_gemm(calm_sgemm_nn, calm_dgemm_nn, false, false);
}
END_OF_TEST

TEST(gemm_tn)
{
    check_gemm(calm_sgemm_tn, calm_dgemm_tn, true, false);
}
END_OF_TEST

enum { SYRK_N = 19, SYRK_K = 31, SYRK_LDA = 22, SYRK_LDC = 20 };

/* Checks c [SYRK_N, SYRK_LDC] = 0.5 A^T A + 2 start in the upper triangle, computed with this unit roundoff. */
static void check_syrk(const double *a, const double *start, const double *c, double unit)
{
    for (int i = 0; i < SYRK_N; i++)
        for (int j = 0; j < SYRK_LDC; j++) {
            if (j < i || j >= SYRK_N) {
                ck_assert_double_eq(c[i * SYRK_LDC + j], start[i * SYRK_LDC + j]);
                continue;
            }
            double sum = 0, size = 0;
            for (int t = 0; t < SYRK_K; t++) {
                sum += a[t * SYRK_LDA + i] * a[t * SYRK_LDA + j];
                size += fabs(a[t * SYRK_LDA + i] * a[t * SYRK_LDA + j]);
            }
            double expected = 0.5 * sum + 2 * start[i * SYRK_LDC + j];
            ck_near(c[i * SYRK_LDC + j], expected, 2 * (SYRK_K + 4) * unit * (size + fabs(expected)));
        }
}

TEST(syrk_fills_the_upper_triangle_alone)
{
    const double *a = random_doubles(1, SYRK_K * SYRK_LDA);
    double c[SYRK_N * SYRK_LDC], start[SYRK_N * SYRK_LDC];
    for (int i = 0; i < SYRK_N * SYRK_LDC; i++)
        c[i] = start[i] = i;
    float *c32 = to_floats(c, SYRK_N * SYRK_LDC);
    calm_dsyrk_t(SYRK_N, SYRK_K, 0.5, a, SYRK_LDA, 2, c, SYRK_LDC);
    check_syrk(a, start, c, 0x1p-53);
    calm_dsymmetrize(SYRK_N, c, SYRK_LDC);
    for (int i = 0; i < SYRK_N; i++)
        for (int j = 0; j < SYRK_N; j++)
            ck_assert_double_eq(c[i * SYRK_LDC + j], c[j * SYRK_LDC + i]);
    ck_assert_double_eq(c[SYRK_N], start[SYRK_N]);
    calm_ssyrk_t(SYRK_N, SYRK_K, 0.5f, to_floats(a, SYRK_K * SYRK_LDA), SYRK_LDA, 2, c32, SYRK_LDC);
    for (int i = 0; i < SYRK_N * SYRK_LDC; i++)
        c[i] = c32[i];
    check_syrk(a, start, c, 0x1p-24);
}
END_OF_TEST

/* Makes A = X^T X + n I with rows X [2n, n]: symmetric, with a small condition number. */
static double *definite(size_t n, size_t lda)
{
    double *x = random_doubles(9, 2 * n * n), *a = calm_arena_zalloc(ctx->scratch, n * lda, sizeof *a);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++) {
            for (size_t t = 0; t < 2 * n; t++)
                a[i * lda + j] += x[t * n + i] * x[t * n + j];
            a[i * lda + j] += i == j ? (double)n : 0;
        }
    return a;
}

static double *copy_of(const double *x, size_t n)
{
    double *y = calm_arena_alloc(ctx->scratch, n, sizeof *y);
    memcpy(y, x, n * sizeof *y);
    return y;
}

/* Backward error of Cholesky: |U^T U - A| <= (n + 1) u |U^T| |U| elementwise (Higham, theorem 10.3). */
TEST(cholesky_gives_the_factor)
{
    static const size_t sizes[] = {1, 2, 7, 40, 130};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t n = sizes[s], lda = n + 3;
        double *a = definite(n, lda), *u = copy_of(a, n * lda);
        ck_ok(calm_dcholesky_upper(ctx, n, u, lda));
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < n; j++) {
                if (j < i) {
                    ck_assert_double_eq(u[i * lda + j], a[i * lda + j]);
                    continue;
                }
                double sum = 0, size = 0;
                for (size_t t = 0; t <= i; t++) {
                    sum += u[t * lda + i] * u[t * lda + j];
                    size += fabs(u[t * lda + i] * u[t * lda + j]);
                }
                ck_near(sum, a[i * lda + j], 2 * (double)(n + 1) * 0x1p-53 * size);
            }
    }
}
END_OF_TEST

/* |U inv(U) - I| <= c n u cond(U); cond(U)^2 < 10 for these. */
TEST(an_upper_triangle_is_inverted)
{
    size_t n = 40, lda = 43;
    double *a = definite(n, lda), *u = copy_of(a, n * lda);
    ck_ok(calm_dcholesky_upper(ctx, n, u, lda));
    double *inverse = copy_of(u, n * lda);
    ck_ok(calm_dinvert_upper(ctx, n, 0, inverse, lda));
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++)
            ck_assert_double_eq(inverse[i * lda + j], a[i * lda + j]);    /* the lower one is not written */
    for (size_t i = 0; i < n; i++)
        for (size_t j = i; j < n; j++) {
            double sum = 0;
            for (size_t t = i; t <= j; t++)
                sum += u[i * lda + t] * inverse[t * lda + j];
            ck_near(sum, i == j, 10 * (double)n * 0x1p-53);
        }
}
END_OF_TEST

TEST(solve_takes_several_right_hand_sides)
{
    size_t n = 40, lda = 41, n_rhs = 5, ldb = 6;
    double *a = definite(n, lda), *u = copy_of(a, n * lda), *b = random_doubles(4, n * ldb), *x = copy_of(b, n * ldb);
    ck_ok(calm_dcholesky_upper(ctx, n, u, lda));
    ck_ok(calm_dcholesky_solve(ctx, n, u, lda, n_rhs, x, ldb));
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < n_rhs; j++) {
            double sum = 0, size = 0;
            for (size_t t = 0; t < n; t++) {
                sum += a[i * lda + t] * x[t * ldb + j];
                size += fabs(a[i * lda + t] * x[t * ldb + j]);
            }
            /* backward stable: the residual is within (3n + 1) u |U^T||U||x| <= 4 n u n |A||x| (theorem 10.4) */
            ck_near(sum, b[i * ldb + j], 4 * (double)(n * n) * 0x1p-53 * (size + 1));
        }
        ck_assert_double_eq(x[i * ldb + n_rhs], b[i * ldb + n_rhs]);
    }
}
END_OF_TEST

TEST(a_matrix_that_is_not_positive_definite_is_refused)
{
    double indefinite[] = {1, 2, 2, 1};
    ck_fails(calm_dcholesky_upper(ctx, 2, indefinite, 2), CALM_ENUMERIC, "order 2 is not positive definite");
    double zero[9] = {0};
    ck_fails(calm_dcholesky_upper(ctx, 3, zero, 3), CALM_ENUMERIC, "order 1 is not positive definite");
    double *a = definite(130, 130);
    a[100 * 130 + 100] = -1;
    ck_fails(calm_dcholesky_upper(ctx, 130, a, 130), CALM_ENUMERIC, "order 101 is not");
    ck_ok(calm_dcholesky_upper(ctx, 0, NULL, 1));
    ck_ok(calm_dinvert_upper(ctx, 0, 0, NULL, 1));
    double singular[] = {1, 2, 0, 0};
    ck_fails(calm_dinvert_upper(ctx, 2, 100, singular, 2), CALM_ENUMERIC, "diagonal element 101 of the factor is zero");
}
END_OF_TEST

TEST(the_library_names_itself)
{
    ck_assert_ptr_nonnull(strstr(calm_linalg_version(), "OpenBLAS"));
}
END_OF_TEST

/* More memory for more rows of 256 terms or more in double, and never more than OpenBLAS's buffer. */
TEST(buffers_of_a_thread)
{
    const size_t row = calm_linalg_buffer_bytes(1) - calm_linalg_buffer_bytes(0), whole = (size_t)128 << 20;
    ck_assert_uint_ge(row, 256 * sizeof(double));
    ck_assert_uint_eq(calm_linalg_buffer_bytes(4096), calm_linalg_buffer_bytes(0) + 4096 * row);
    ck_assert_uint_ge(calm_linalg_buffer_bytes(0), 768 * 384 * sizeof(float));
    ck_assert_uint_eq(calm_linalg_buffer_bytes(whole), whole);
    ck_assert_uint_eq(calm_linalg_buffer_bytes(SIZE_MAX), whole);
}
END_OF_TEST

int main(void)
{
    return run_tests("linalg",
                     (const TTest *[]){gemm_nt, gemm_nn, gemm_tn, syrk_fills_the_upper_triangle_alone,
                                       cholesky_gives_the_factor, an_upper_triangle_is_inverted,
                                       solve_takes_several_right_hand_sides,
                                       a_matrix_that_is_not_positive_definite_is_refused, the_library_names_itself,
                                       buffers_of_a_thread, NULL});
}
