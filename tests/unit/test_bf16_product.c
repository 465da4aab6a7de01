/* Products of bfloat16: every form and edge against sums in double, whichever kernels compute them here. */
#include "ptq/tensor/bf16_product.h"

#include "ptq/tensor/bf16_kernel.h"
#include "tests/support/product_case.h"

/* Products of two numbers of eight bits are exact, and at most 1/4 in size: k sums, each rounded, are off by
 * (k + 2) 2^-24 (k + 1) / 4 at most, the start's own product with beta among them.  What is not of C stays. */
static void check(calm_product_form form, size_t m, size_t n, size_t k, float beta)
{
    const product_case p = new_product(form, m, n, k, beta);
    ck_ok(calm_bf16_product(ctx, form, m, n, k, p.a, p.lda, p.b, p.ldb, beta, p.c, p.ldc));
    ck_product(&p, CALM_BF16, (double)(k + 2) * 0x1p-24 * (double)(k + 1) / 4);
}

/* One row, column or term; whole tiles of 12 by 32 and what is left of them; more rows, columns and terms than a block
 * has, whose last is short. */
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
        check(form, 401, 35, 40, 1);
        check(form, 3, CALM_BF16_COLS + 17, 9, 0);
        check(form, 15, 20, 2 * CALM_BF16_TERMS + 11, 1);
    }
}
END_OF_TEST

/* Rows and columns in pieces have the bytes of the whole: what rows of a window, and windows on other threads, rely on.
 * Pieces begin as calm_product_rows cuts them. */
TEST(pieces)
{
    enum { M = 912, N = 300, K = 700 };
    calm_linalg_setup();
    for (calm_product_form form = CALM_PRODUCT_NT; form <= CALM_PRODUCT_TN; form++) {
        const size_t lda = form == CALM_PRODUCT_TN ? M : K, ldb = form == CALM_PRODUCT_NT ? K : N;
        const float *a = random_matrix(M * K, 1), *b = random_matrix(N * K, 2);
        float *whole = random_matrix(M * N, 3), *c = random_matrix(M * N, 3);
        ck_ok(calm_bf16_product(ctx, form, M, N, K, a, lda, b, ldb, 1, whole, N));
        for (size_t i = 0, rows; i < M; i += rows) {
            rows = calm_size_min(i == 0 ? 48 : 432, M - i);
            ck_ok(calm_bf16_product(ctx, form, rows, N, K, a + (form == CALM_PRODUCT_TN ? i : i * lda), lda, b, ldb, 1,
                                    c + i * N, N));
        }
        ck_assert(memcmp(c, whole, M * N * sizeof *c) == 0);
    }
}
END_OF_TEST

/* Ties to even, both ways; numbers that bfloat16 holds stay; infinities and NaN go where they belong alone. */
TEST(rounding)
{
    const float odd = 1 + 0x1p-7f, even = 1 + 0x1p-6f;
    const float a[] = {odd + 0x1p-8f, even + 0x1p-8f, odd + 0x1p-9f, -3.140625f, INFINITY, 1, NAN};
    const float want[] = {even, even, odd, -3.140625f, INFINITY, 1, NAN};
    const float one[] = {1};
    float c[7];
    calm_linalg_setup();
    ck_ok(calm_bf16_product(ctx, CALM_PRODUCT_NT, 7, 1, 1, a, 1, one, 1, 0, c, 1));
    for (size_t i = 0; i < 6; i++)
        ck_assert_float_eq(c[i], want[i]);
    ck_assert_float_nan(c[6]);
}
END_OF_TEST

/* The triangle has the bytes of the whole product where that comes of the same kernel: ours.  BLAS's own update of a
 * triangle adds in another order, so there it is near: (k + 2) 2^-24 k / 4 as above. */
static void check_upper(size_t n, size_t k)
{
    const size_t ldx = n + 3;
    const float *x = random_matrix(k * ldx, 1);
    float *c = random_matrix(n * n, 3), *whole = random_matrix(n * n, 3);
    ck_ok(calm_bf16_product(ctx, CALM_PRODUCT_TN, n, n, k, x, ldx, x, ldx, 0, whole, n));
    ck_ok(calm_bf16_product_upper(ctx, n, k, x, ldx, c, n));
    for (size_t i = 0; i < n; i++)
        for (size_t j = i; j < n; j++)
            ck_near(c[i * n + j], (double)whole[i * n + j],
                    calm_bf16_is_fast() ? 0 : 2 * (double)(k + 2) * 0x1p-24 * (double)k / 4);
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

/* What it takes is what it says, of whole blocks; of few rows less. */
TEST(memory)
{
    enum { M = 500, N = CALM_BF16_COLS, K = CALM_BF16_TERMS };
    calm_linalg_setup();
    const float *a = random_matrix(M * K, 1), *b = random_matrix(N * K, 2);
    float *c = random_matrix(M * N, 3);
    ck_memory(calm_bf16_product(ctx, CALM_PRODUCT_NT, M, N, K, a, K, b, K, 0, c, N), 0, calm_bf16_scratch_bytes(M));
    ck_memory(calm_bf16_product(ctx, CALM_PRODUCT_NN, 12, N, K, a, K, b, N, 0, c, N), 0, calm_bf16_scratch_bytes(12));
    ck_assert_uint_lt(calm_bf16_scratch_bytes(12), calm_bf16_scratch_bytes(M));
}
END_OF_TEST

/* Nothing to compute is no error. */
TEST(empty)
{
    ck_ok(calm_bf16_product(ctx, CALM_PRODUCT_NT, 0, 4, 2, NULL, 2, NULL, 2, 0, NULL, 4));
    ck_ok(calm_bf16_product(ctx, CALM_PRODUCT_NT, 4, 0, 2, NULL, 2, NULL, 2, 0, NULL, 0));
}
END_OF_TEST

int main(void)
{
    return run_tests("bf16_product", (const TTest *[]){forms, pieces, rounding, upper, memory, empty, NULL});
}
