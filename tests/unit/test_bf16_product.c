/* Products with bfloat16 operands: every form and edge against sums in double, with whichever kernels the CPU has. */
#include "ptq/tensor/bf16_product.h"

#include "ptq/base/scope.h"
#include "ptq/tensor/bf16_kernel.h"
#include "tests/support/product_case.h"

/* Returns the last kind to test: one bfloat16, or two if the CPU has kernels for them. */
static calm_operands last_kind(void)
{
    return calm_bf16_is_fast(CALM_OPERANDS_BF16X2) ? CALM_OPERANDS_BF16X2 : CALM_OPERANDS_BF16;
}

#define EACH_KIND(name) (calm_operands name = CALM_OPERANDS_BF16; name <= last_kind(); name++)

/* Tolerance: products of two values are at most 1/4 and exact in bfloat16, so k rounded sums are off by at most (k +
 * 2) 2^-24 (k + 1) / 4, including beta times the start.  With two parts there are three products per term, and a
 * term is off by 3 * 2^-18 of 1/4.  Memory next to C is not written. */
static void check_kind(calm_operands operands, calm_product_form form, size_t m, size_t n, size_t k, float beta)
{
    const bool two = operands == CALM_OPERANDS_BF16X2;
    const product_case p = new_product(form, m, n, k, beta);
    const double sums = (double)((two ? 3 : 1) * k + 2) * 0x1p-24 * (double)(k + 1) / 4;
    CALM_SCOPED_OPERANDS(ctx, operands);
    ck_ok(calm_bf16_product(ctx, form, m, n, k, p.a, p.lda, p.b, p.ldb, beta, p.c, p.ldc));
    ck_product(&p, two ? CALM_F32 : CALM_BF16, sums + (two ? 3 * 0x1p-18 * (double)k / 4 : 0));
}

static void check(calm_product_form form, size_t m, size_t n, size_t k, float beta)
{
    for EACH_KIND(operands)
        check_kind(operands, form, m, n, k, beta);
}

/* One row, column or term; whole tiles of 12 by 32 with short ones at the ends; more rows, columns and terms than a
 * block. */
TEST(forms)
{
    calm_linalg_setup();
    for (calm_product_form form = CALM_PRODUCT_NT; form <= CALM_PRODUCT_TN; form++) {
        check(form, 1, 1, 1, 0);
        check(form, 1, 1, 0, 0.5f);
        check(form, 5, 7, 3, 0);
        check(form, 12, 32, 32, 1);
        check(form, 13, 33, 31, 0.5f);
        check(form, 25, 49, 65, 1);
        check(form, 101, 131, 99, 0.5f);
        check(form, 401, 35, 90, 1);
        check(form, 3, CALM_BF16_COLS + 17, 9, 0);
        check(form, 15, 20, 2 * CALM_BF16_TERMS + 11, 1);
        check(form, 35, 40, 8 * CALM_BF16_TERMS + 70, 0.5f);    /* more blocks of terms than rows are packed for */
    }
}
END_OF_TEST

/* Rows and columns computed in pieces have the bytes of the whole, on which the forward pass relies for windows and
 * threads.  Pieces begin where calm_product_rows() cuts. */
static void check_pieces(calm_operands operands, calm_product_form form)
{
    enum { M = 912, N = 300, K = 700 };
    const size_t lda = form == CALM_PRODUCT_TN ? M : K, ldb = form == CALM_PRODUCT_NT ? K : N;
    const float *a = random_matrix(M * K, 1), *b = random_matrix(N * K, 2);
    float *whole = random_matrix(M * N, 3), *c = random_matrix(M * N, 3);
    CALM_SCOPED_OPERANDS(ctx, operands);
    ck_ok(calm_bf16_product(ctx, form, M, N, K, a, lda, b, ldb, 1, whole, N));
    for (size_t i = 0, rows; i < M; i += rows) {
        rows = calm_size_min(i == 0 ? 48 : 432, M - i);
        ck_ok(calm_bf16_product(ctx, form, rows, N, K, a + (form == CALM_PRODUCT_TN ? i : i * lda), lda, b, ldb, 1,
                                c + i * N, N));
    }
    ck_assert(memcmp(c, whole, M * N * sizeof *c) == 0);
}

TEST(pieces)
{
    calm_linalg_setup();
    for EACH_KIND(operands)
        for (calm_product_form form = CALM_PRODUCT_NT; form <= CALM_PRODUCT_TN; form++)
            check_pieces(operands, form);
}
END_OF_TEST

/* Checks that the product of a column a [n] with 1 is `want`; the last value of `a` is NaN. */
static void times_one(calm_operands operands, size_t n, const float *a, const float *want)
{
    const float one[] = {1};
    float c[8];
    CALM_SCOPED_OPERANDS(ctx, operands);
    ck_ok(calm_bf16_product(ctx, CALM_PRODUCT_NT, n, 1, 1, a, 1, one, 1, 0, c, 1));
    for (size_t i = 0; i + 1 < n; i++)
        ck_assert_float_eq(c[i], want[i]);
    ck_assert_float_nan(c[n - 1]);
}

/* Ties round to even in both directions; bfloat16 values are exact; infinities and NaN affect only their own
 * outputs. */
TEST(rounding)
{
    const float odd = 1 + 0x1p-7f, even = 1 + 0x1p-6f;
    const float a[] = {odd + 0x1p-8f, even + 0x1p-8f, odd + 0x1p-9f, -3.140625f, INFINITY, 1, NAN};
    const float want[] = {even, even, odd, -3.140625f, INFINITY, 1, NAN};
    calm_linalg_setup();
    times_one(CALM_OPERANDS_BF16, 7, a, want);
}
END_OF_TEST

/* Two parts hold sixteen bits and round to nearest; values that are not finite have no second part. */
TEST(two_parts)
{
    const float a[] = {1 + 0x1p-15f, 1 - 0x1p-16f, -3 - 0x1p-14f, 0x1p-60f, -INFINITY, NAN};
    calm_linalg_setup();
    if (calm_bf16_is_fast(CALM_OPERANDS_BF16X2))
        times_one(CALM_OPERANDS_BF16X2, 6, a, a);
}
END_OF_TEST

/* If all second parts are zero, the bytes are those of one part. */
TEST(exact_operands)
{
    enum { M = 70, N = 45, K = 300 };
    float *a = random_matrix(M * K, 1), *b = random_matrix(N * K, 2), *one = random_matrix(M * N, 3),
          *two = random_matrix(M * N, 3);
    calm_linalg_setup();
    if (!calm_bf16_is_fast(CALM_OPERANDS_BF16X2))
        return;
    calm_dtype_round_all(CALM_BF16, a, M * K);
    calm_dtype_round_all(CALM_BF16, b, N * K);
    check_kind(CALM_OPERANDS_BF16X2, CALM_PRODUCT_NT, M, N, K, 0);
    ctx->operands = CALM_OPERANDS_BF16;
    ck_ok(calm_bf16_product(ctx, CALM_PRODUCT_NT, M, N, CALM_BF16_TERMS / 2, a, K, b, K, 0, one, N));
    ctx->operands = CALM_OPERANDS_BF16X2;
    ck_ok(calm_bf16_product(ctx, CALM_PRODUCT_NT, M, N, CALM_BF16_TERMS / 2, a, K, b, K, 0, two, N));
    ctx->operands = CALM_OPERANDS_F32;
    ck_assert(memcmp(one, two, M * N * sizeof *one) == 0);
}
END_OF_TEST

/* Products with few columns or terms, in which bfloat16 saves no time, are float32 products. */
static void check_small(calm_product_form form, size_t m, size_t n, size_t k)
{
    const product_case p = new_product(form, m, n, k, 0.5f), same = new_product(form, m, n, k, 0.5f);
    CALM_SCOPED_OPERANDS(ctx, CALM_OPERANDS_BF16X2);
    ck_ok(calm_bf16_product(ctx, form, m, n, k, p.a, p.lda, p.b, p.ldb, 0.5f, p.c, p.ldc));
    calm_sgemm(form, m, n, k, p.a, p.lda, p.b, p.ldb, 0.5f, same.c, p.ldc);
    ck_assert(memcmp(p.c, same.c, m * p.ldc * sizeof *p.c) == 0);
}

TEST(small)
{
    calm_linalg_setup();
    if (!calm_bf16_is_fast(CALM_OPERANDS_BF16X2))
        return;
    for (calm_product_form form = CALM_PRODUCT_NT; form <= CALM_PRODUCT_TN; form++) {
        check_small(form, 300, 16, 400);
        check_small(form, 700, 600, 4);
    }
}
END_OF_TEST

/* The triangle has the bytes of the whole product if both use calm's kernel.  BLAS updates a triangle in another
 * order, so there the tolerance is twice (k + 2) 2^-24 k / 4, as above. */
static void check_upper_kind(calm_operands operands, size_t n, size_t k)
{
    const size_t ldx = n + 3;
    const float *x = random_matrix(k * ldx, 1);
    float *c = random_matrix(n * n, 3), *whole = random_matrix(n * n, 3);
    CALM_SCOPED_OPERANDS(ctx, operands);
    ck_ok(calm_bf16_product(ctx, CALM_PRODUCT_TN, n, n, k, x, ldx, x, ldx, 0, whole, n));
    ck_ok(calm_bf16_product_upper(ctx, n, k, x, ldx, c, n));
    for (size_t i = 0; i < n; i++)
        for (size_t j = i; j < n; j++)
            ck_near(c[i * n + j], (double)whole[i * n + j],
                    calm_bf16_is_fast(operands) ? 0 : 2 * (double)(k + 2) * 0x1p-24 * (double)k / 4);
}

static void check_upper(size_t n, size_t k)
{
    for EACH_KIND(operands)
        check_upper_kind(operands, n, k);
}

TEST(upper)
{
    calm_linalg_setup();
    check_upper(1, 1);
    check_upper(45, 3);
    check_upper(512, 30);
    check_upper(401, CALM_BF16_TERMS + 100);
    check_upper(CALM_BF16_COLS + 50, 2);    /* more than one block */
}
END_OF_TEST

/* The estimate of memory is exact for whole blocks, and an upper bound for few rows. */
static void check_memory(calm_operands operands)
{
    enum { M = 500, N = CALM_BF16_COLS, K = 8 * CALM_BF16_TERMS };
    const float *a = random_matrix(M * K, 1), *b = random_matrix(N * K, 2);
    float *c = random_matrix(M * N, 3);
    CALM_SCOPED_OPERANDS(ctx, operands);
    ck_memory(calm_bf16_product(ctx, CALM_PRODUCT_NT, M, N, K, a, K, b, K, 0, c, N), 0,
              calm_bf16_scratch_bytes(operands, M));
    ck_memory(calm_bf16_product(ctx, CALM_PRODUCT_NN, 12, N, K, a, K, b, N, 0, c, N), 0,
              calm_bf16_scratch_bytes(operands, 12));
    ck_assert_uint_lt(calm_bf16_scratch_bytes(operands, 12), calm_bf16_scratch_bytes(operands, M));
}

TEST(memory)
{
    calm_linalg_setup();
    for EACH_KIND(operands)
        check_memory(operands);
}
END_OF_TEST

/* Empty products are no error. */
TEST(empty)
{
    ctx->operands = CALM_OPERANDS_BF16;
    ck_ok(calm_bf16_product(ctx, CALM_PRODUCT_NT, 0, 4, 2, NULL, 2, NULL, 2, 0, NULL, 4));
    ck_ok(calm_bf16_product(ctx, CALM_PRODUCT_NT, 4, 0, 2, NULL, 2, NULL, 2, 0, NULL, 0));
    ctx->operands = CALM_OPERANDS_F32;
}
END_OF_TEST

int main(void)
{
    return run_tests("bf16_product", (const TTest *[]){forms, pieces, rounding, two_parts, exact_operands, small,
                                                       upper, memory, empty, NULL});
}
