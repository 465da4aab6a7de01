/* The upper factor of an inverse, and the root, against the matrix that they come from. */
#include "ptq/tensor/inverse_root.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "ptq/base/rng.h"
#include "ptq/base/scope.h"
#include "ptq/tensor/bf16_product.h"
#include "tests/support/harness.h"

/* Makes a [n, lda] = X^T X / rows + shift I of normal X, with a mark in its strict lower triangle. */
#define MARK 12345.5
static double *random_positive(uint64_t seed, size_t n, size_t lda, double shift)
{
    const size_t rows = n + 8;
    double *x = calm_arena_alloc(ctx->scratch, rows * n + 1, sizeof *x);
    double *a = calm_arena_alloc(ctx->scratch, n * lda + 1, sizeof *a);
    for (size_t i = 0; i < rows * n; i++)
        x[i] = calm_rng_normal(seed, 0, i);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < lda; j++)
            a[i * lda + j] = MARK;
    for (size_t i = 0; i < n; i++)
        for (size_t j = i; j < n; j++) {
            double sum = 0;
            for (size_t t = 0; t < rows; t++)
                sum += x[t * n + i] * x[t * n + j];
            a[i * lda + j] = sum / (double)rows + (i == j ? shift : 0);
        }
    return a;
}

/* A backward stable factor and triangular inverse leave |U a U^T - I| <= 8 n u cond(a), elementwise bounded by the
 * norm (Higham, Accuracy and Stability, sections 10.1 and 14.2); cond(a) <= trace(a) / shift. */
static void check_factor(size_t n, size_t lda, double shift, int n_threads)
{
    double *a = random_positive(n, n, lda, shift), *u = calm_arena_alloc(ctx->scratch, n * lda + 1, sizeof *u);
    double trace = 0;
    memcpy(u, a, n * lda * sizeof *u);
    for (size_t i = 0; i < n; i++)
        trace += a[i * lda + i];
    ctx->n_threads = n_threads;
    ck_ok(calm_dinverse_root(ctx, n, u, lda));
    const double bound = 8 * (double)n * DBL_EPSILON * trace / shift;
    double *row = calm_arena_alloc(ctx->scratch, n + 1, sizeof *row);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < n; j++) {    /* row i of U a */
            row[j] = 0;
            for (size_t l = i; l < n; l++)
                row[j] += u[i * lda + l] * (l <= j ? a[l * lda + j] : a[j * lda + l]);
        }
        for (size_t k = 0; k < n; k++) {
            double sum = 0;
            for (size_t j = k; j < n; j++)
                sum += row[j] * u[k * lda + j];
            ck_near(sum, i == k, bound);
        }
        for (size_t j = 0; j < i; j++)
            ck_assert_double_eq(u[i * lda + j], MARK);
        for (size_t j = n; j < lda; j++)
            ck_assert_double_eq(u[i * lda + j], MARK);
    }
}

static float *floats_of(size_t n, const double *x)
{
    float *out = calm_arena_alloc(ctx->scratch, n + 1, sizeof *out);
    for (size_t i = 0; i < n; i++)
        out[i] = (float)x[i];
    return out;
}

/* A backward stable root leaves |R R^T - a| <= 8 n u |a| (section 10.1 there).  Products of two-part operands are
 * off once more, by 3 * 2^-18 of each term; 8 again for the effect of inverting a tile. */
static void check_root(calm_operands operands, size_t n, size_t lda, double shift, int n_threads)
{
    const double bound = 8 * (double)n * (double)FLT_EPSILON + (operands == CALM_OPERANDS_BF16X2 ? 24 * 0x1p-18 : 0);
    CALM_SCOPED_OPERANDS(ctx, operands);
    double *a = random_positive(n, n, lda, shift), wrong = 0, size = 0;
    float *root = floats_of(n * lda, a);
    ctx->n_threads = n_threads;
    ck_ok(calm_sroot(ctx, n, root, lda));
    for (size_t i = 0; i < n; i++)
        for (size_t j = i; j < n; j++) {
            double sum = 0;
            for (size_t k = j; k < n; k++)
                sum += (double)root[i * lda + k] * (double)root[j * lda + k];
            wrong += (sum - a[i * lda + j]) * (sum - a[i * lda + j]);
            size += a[i * lda + j] * a[i * lda + j];
        }
    ck_assert_msg(sqrt(wrong / size) <= bound, "%zu: %g", n, sqrt(wrong / size));
    for (size_t i = 0; i < n; i++) {
        ck_assert_float_gt(root[i * lda + i], 0);
        for (size_t j = 0; j < lda; j++)
            if (j >= n || j / 192 < i / 192)    /* below the tiles on the diagonal */
                ck_assert_float_eq(root[i * lda + j], (float)MARK);
    }
}

TEST(the_root_in_float)
{
    static const size_t sizes[] = {1, 2, 7, 191, 192, 193, 400};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t two = 0; two < 2; two++)
            check_root(two ? CALM_OPERANDS_BF16X2 : CALM_OPERANDS_F32, sizes[i], sizes[i] + i % 3, 0.01,
                       1 + (int)(i % 3));
    ck_ok(calm_sroot(ctx, 0, NULL, 0));
    float indefinite[] = {1, 2, 2, 1};
    ck_fails(calm_sroot(ctx, 2, indefinite, 2), CALM_ENUMERIC, "from column 0 on is not positive definite");
}
END_OF_TEST

TEST(the_inverse_has_this_factor)
{
    static const size_t sizes[] = {1, 2, 7, 191, 192, 193, 400};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        check_factor(sizes[i], sizes[i] + i % 3, 0.01, 1 + (int)(i % 3));
    ck_ok(calm_dinverse_root(ctx, 0, NULL, 0));
}
END_OF_TEST

TEST(the_same_bytes_for_any_number_of_threads)
{
    enum { N = 500 };
    double *a = random_positive(3, N, N, 0.1), *first = NULL;
    for (int n_threads = 1; n_threads <= 4; n_threads++) {
        double *u = calm_arena_alloc(ctx->scratch, N * N, sizeof *u);
        memcpy(u, a, N * N * sizeof *u);
        ctx->n_threads = n_threads;
        ck_ok(calm_dinverse_root(ctx, N, u, N));
        if (first)
            ck_assert_mem_eq(u, first, N * N * sizeof *u);
        first = first ? first : u;
    }
    float *of_kind[2];
    for (size_t two = 0; two < 2; two++) {
        CALM_SCOPED_OPERANDS(ctx, two ? CALM_OPERANDS_BF16X2 : CALM_OPERANDS_F32);
        float *single = NULL;
        for (int n_threads = 1; n_threads <= 4; n_threads++) {
            float *u = floats_of(N * N, a);
            ctx->n_threads = n_threads;
            ck_ok(calm_sroot(ctx, N, u, N));
            if (single)
                ck_assert_mem_eq(u, single, N * N * sizeof *u);
            single = single ? single : u;
        }
        of_kind[two] = single;
    }
    ck_assert_int_eq(memcmp(of_kind[0], of_kind[1], N * N * sizeof(float)) != 0,
                     calm_bf16_is_fast(CALM_OPERANDS_BF16X2));
}
END_OF_TEST

/* Minors are taken from the end: the message has the first column of the first that fails. */
TEST(the_pivot_is_named)
{
    enum { N = 260 };
    static double a[N * N];
    for (size_t bad = 0; bad < N; bad += 67) {
        memset(a, 0, sizeof a);
        for (size_t i = 0; i < N; i++)
            a[i * N + i] = i == bad ? 0 : 1;
        ck_fails(calm_dinverse_root(ctx, N, a, N), CALM_ENUMERIC,
                 test_format("the trailing minor from column %zu on is not positive definite", bad));
        calm_ctx_clear_failure(ctx);
    }
}
END_OF_TEST

TEST(scratch_is_as_said)
{
    enum { N = 300 };
    double *a = random_positive(1, N, N, 0.1);
    const size_t before = ctx->scratch->used_bytes;
    ctx->n_threads = 1;
    ck_ok(calm_dinverse_root(ctx, N, a, N));
    ck_assert_uint_eq(ctx->scratch->used_bytes, before);
    ck_assert_uint_ge(calm_dinverse_root_scratch_bytes(N), (N + 192) * 192 * sizeof(double));
    ck_assert_uint_ge(calm_sroot_scratch_bytes(CALM_OPERANDS_F32, N), (N + 192) * 192 * sizeof(float));
}
END_OF_TEST

int main(void)
{
    return run_tests("inverse_root",
                     (const TTest *[]){the_inverse_has_this_factor, the_root_in_float,
                                       the_same_bytes_for_any_number_of_threads, the_pivot_is_named,
                                       scratch_is_as_said, NULL});
}
