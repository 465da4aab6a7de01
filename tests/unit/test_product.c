/* Products in tiles: every form against sums in double, and the same bytes for any number of threads. */
#include "ptq/tensor/product.h"

#include "ptq/base/rng.h"
#include "ptq/tensor/linalg.h"
#include "tests/support/harness.h"

enum { LARGEST = 640 };

static float *random_matrix(size_t n, uint64_t stream)
{
    float *x;
    ck_ok(CALM_NEW(ctx, ctx->out, x, n));
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(calm_rng_uniform(3, stream, i) - 0.5);
    return x;
}

/* Sums of k products below 1/4 in size, each rounded: (k + 2) 2^-24 k / 4 at most. */
static void check(calm_product_form form, size_t m, size_t n, size_t k, float beta)
{
    const bool ta = form == CALM_PRODUCT_TN, tb = form == CALM_PRODUCT_NT;
    const size_t lda = (ta ? m : k) + 3, ldb = (tb ? k : n) + 5, ldc = n + 7;
    const float *a = random_matrix((ta ? k : m) * lda, 1), *b = random_matrix((tb ? n : k) * ldb, 2);
    const float *start = random_matrix(m * ldc, 3);
    float *c, *again;
    ck_ok(CALM_NEW(ctx, ctx->out, c, m * ldc));
    ck_ok(CALM_NEW(ctx, ctx->out, again, m * ldc));
    memcpy(c, start, m * ldc * sizeof *c);
    ctx->n_threads = 1;
    ck_ok(calm_product(ctx, form, m, n, k, a, lda, b, ldb, beta, c, ldc));
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < ldc; j++) {
            double sum = (double)beta * (double)start[i * ldc + j];
            for (size_t l = 0; j < n && l < k; l++)
                sum += (double)a[ta ? l * lda + i : i * lda + l] * (double)b[tb ? j * ldb + l : l * ldb + j];
            ck_near(c[i * ldc + j], j < n ? sum : (double)start[i * ldc + j],
                    (double)(k + 2) * 0x1p-24 * (double)k / 4);
        }
    for (int threads = 2; threads <= 4; threads += 2) {
        memcpy(again, start, m * ldc * sizeof *c);
        ctx->n_threads = threads;
        ck_ok(calm_product(ctx, form, m, n, k, a, lda, b, ldb, beta, again, ldc));
        ck_assert(memcmp(c, again, m * ldc * sizeof *c) == 0);
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

/* Nothing to compute is no error. */
TEST(empty)
{
    ck_ok(calm_product(ctx, CALM_PRODUCT_NN, 0, 4, 2, NULL, 2, NULL, 4, 0, NULL, 4));
    ck_ok(calm_product(ctx, CALM_PRODUCT_NN, 4, 0, 2, NULL, 2, NULL, 0, 0, NULL, 0));
}
END_OF_TEST

int main(void)
{
    return run_tests("product", (const TTest *[]){forms, empty, NULL});
}
