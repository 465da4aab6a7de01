/* cka/cka.c and cka/metric.c: the general form, the loss from three products, names. */
#include "tests/support/harness.h"

#include "cka/products.h"
#include "ptq/base/rng.h"

enum { N = 12, D = 5 };

static double *random_matrix(uint64_t stream, size_t count)
{
    double *x;
    ck_ok(CALM_NEW(ctx, ctx->out, x, count));
    for (size_t i = 0; i < count; i++)
        x[i] = calm_rng_normal(11, stream, i);
    return x;
}

TEST(metric_names_are_found_again)
{
    for (int i = 0; i < CALM_N_METRICS; i++) {
        ck_assert_int_eq(calm_metric_find(calm_metric_name((calm_metric)i)), i);
        ck_assert_uint_gt(strlen(calm_metric_help((calm_metric)i)), 0);
    }
    ck_assert_int_eq(calm_metric_find("no_such_metric"), CALM_N_METRICS);
    ck_assert_str_eq(calm_metric_name(CALM_N_METRICS), "?");
    ck_assert_str_eq(calm_metric_help(CALM_N_METRICS), "?");
}
END_OF_TEST

TEST(a_shifted_scaled_rotated_copy_is_the_same)
{
    double *x = random_matrix(1, N * D), *y = random_matrix(2, N * D), cka, debiased;
    for (size_t i = 0; i < N; i++)
        for (size_t j = 0; j < D; j++) {
            double turned = j == 0 ? 0.6 * x[i * D] + 0.8 * x[i * D + 1]
                                   : j == 1 ? 0.8 * x[i * D] - 0.6 * x[i * D + 1] : x[i * D + j];
            y[i * D + j] = 100 + (double)j - 3 * turned;
        }
    ck_ok(calm_cka_general(ctx, x, D, y, D, N, &cka, &debiased));
    ck_near(cka, 1, 1e-13);
    ck_near(debiased, 1, 1e-12);
}
END_OF_TEST

TEST(widths_may_differ_and_the_order_does_not_matter)
{
    double *x = random_matrix(1, N * D), *y = random_matrix(2, N * 3), forth[2], back[2];
    ck_ok(calm_cka_general(ctx, x, D, y, 3, N, &forth[0], &forth[1]));
    ck_ok(calm_cka_general(ctx, y, 3, x, D, N, &back[0], &back[1]));
    ck_near(forth[0], back[0], 1e-15);
    ck_near(forth[1], back[1], 1e-15);
    ck_assert(forth[0] > 0 && forth[0] < 1 && forth[1] < forth[0]);
}
END_OF_TEST

TEST(a_constant_matrix_is_similar_to_nothing)
{
    double *x = random_matrix(1, N * D), *y = random_matrix(2, N * D), cka, debiased;
    for (size_t i = 0; i < N * D; i++)
        y[i] = 3;
    ck_ok(calm_cka_general(ctx, x, D, y, D, N, &cka, &debiased));
    ck_assert(cka == 0 && debiased == 0);
}
END_OF_TEST

TEST(too_few_rows_and_bad_values_are_refused)
{
    double *x = random_matrix(1, N * D), *y = random_matrix(2, N * D), cka, debiased;
    ck_fails(calm_cka_general(ctx, x, D, y, D, 1, &cka, NULL), CALM_EARG, "1 rows, expected at least 2");
    ck_fails(calm_cka_general(ctx, x, D, y, D, 3, &cka, &debiased), CALM_EARG, "expected at least 4");
    ck_ok(calm_cka_general(ctx, x, D, y, D, 3, &cka, NULL));
    y[2 * D + 1] = NAN;
    ck_fails(calm_cka_general(ctx, x, D, y, D, N, &cka, NULL), CALM_ENUMERIC, "row 2, column 1");
}
END_OF_TEST

TEST(every_failing_allocation_is_reported)
{
    double *x = random_matrix(1, N * D), *y = random_matrix(2, N * D), cka;
    size_t used = ctx->scratch->used_bytes;
    int k = 1;
    for (;; k++) {
        ctx->scratch->fail_in = k;
        calm_status status = calm_cka_general(ctx, x, D, y, D, N, &cka, NULL);
        ctx->scratch->fail_in = 0;
        ck_assert_uint_eq(ctx->scratch->used_bytes, used);
        if (status == CALM_OK)
            break;
        ck_assert_int_eq(status, CALM_ENOMEM);
        calm_ctx_forgive(ctx);
    }
    ck_assert_int_gt(k, 4);
}
END_OF_TEST

/* <K,K> = 1, D = -0.5 K + x K', K' orthogonal and of length 1: tan = x / (s^2 - 0.5). */
TEST(loss_from_products_is_one_minus_cosine)
{
    for (double x = 1e-9; x < 1e9; x *= 10) {
        double loss = calm_cka_loss((calm_products){1, -0.5, 0.25 + x * x}, 1);
        double angle = atan2(x, 0.5), half = sin(angle / 2);
        /* x^2 / 4 is below the rounding of 0.25 under 1e-8: there the difference of two roundings is what is left */
        ck_near(loss, 2 * half * half, 1e-15 + 1e-12 * half * half);
    }
}
END_OF_TEST

TEST(loss_of_constants)
{
    ck_assert(calm_cka_loss((calm_products){1, 0, 0}, 0) == 1);           /* Z constant        */
    ck_assert(calm_cka_loss((calm_products){1, -1, 1}, 1) == 1);          /* D = -K: the same  */
    ck_assert(calm_cka_loss((calm_products){1, 0, 1e-26}, 0) == 1);       /* Z all but that    */
    ck_assert(calm_cka_loss((calm_products){0, 0, 0}, 1) == 0);           /* both constant     */
    ck_assert(calm_cka_loss((calm_products){0, 0, 1}, 1) == 1);           /* only Y            */
    ck_assert(calm_cka_loss((calm_products){1, 0, 0}, 1) == 0);           /* equal             */
    ck_assert(calm_cka_loss((calm_products){1, 0, 0}, 0.5) == 0);         /* a smaller copy    */
    ck_assert(calm_cka_loss((calm_products){1, -2, 4}, 1) == 2);          /* L = -K: debiased  */
}
END_OF_TEST

int main(void)
{
    return run_tests("cka", (const TTest *[]){metric_names_are_found_again, a_shifted_scaled_rotated_copy_is_the_same,
                                              widths_may_differ_and_the_order_does_not_matter,
                                              a_constant_matrix_is_similar_to_nothing,
                                              too_few_rows_and_bad_values_are_refused,
                                              every_failing_allocation_is_reported,
                                              loss_from_products_is_one_minus_cosine, loss_of_constants, NULL});
}
