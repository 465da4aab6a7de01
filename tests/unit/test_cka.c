/* cka/cka.c and cka/metric.c: the loss from three inner products, and names of metrics. */
#include "tests/support/harness.h"

#include "cka/products.h"

TEST(metrics_have_names_of_their_own)
{
    for (int i = 0; i < CALM_N_METRICS; i++)
        for (int j = 0; j < i; j++)
            ck_assert_str_ne(calm_metric_name((calm_metric)i), calm_metric_name((calm_metric)j));
    ck_assert_str_eq(calm_metric_name(CALM_N_METRICS), "?");
}
END_OF_TEST

/* <K,K> = 1 and D = -0.5 K + x K' with K' orthogonal to K and of length 1, so tan = x / (s^2 - 0.5). */
TEST(loss_from_products_is_one_minus_cosine)
{
    for (double x = 1e-9; x < 1e9; x *= 10) {
        double loss = calm_cka_loss((calm_products){1, -0.5, 0.25 + x * x}, 1);
        double angle = atan2(x, 0.5), half = sin(angle / 2);
        /* Below 1e-8 x^2 / 4 vanishes in the rounding of 0.25, which leaves a difference of two roundings. */
        ck_near(loss, 2 * half * half, 1e-15 + 1e-12 * half * half);
    }
}
END_OF_TEST

TEST(loss_of_constants)
{
    ck_assert(calm_cka_loss((calm_products){1, 0, 0}, 0) == 1);           /* Z is constant     */
    ck_assert(calm_cka_loss((calm_products){1, -1, 1}, 1) == 1);          /* D = -K: the same  */
    ck_assert(calm_cka_loss((calm_products){1, 0, 1e-26}, 0) == 1);       /* Z nearly constant */
    ck_assert(calm_cka_loss((calm_products){0, 0, 0}, 1) == 0);           /* both are constant */
    ck_assert(calm_cka_loss((calm_products){0, 0, 1}, 1) == 1);           /* only Y is constant */
    ck_assert(calm_cka_loss((calm_products){1, 0, 0}, 1) == 0);           /* equal             */
    ck_assert(calm_cka_loss((calm_products){1, 0, 0}, 0.5) == 0);         /* a smaller copy    */
    ck_assert(calm_cka_loss((calm_products){1, -2, 4}, 1) == 2);          /* L = -K: debiased  */
}
END_OF_TEST

int main(void)
{
    return run_tests("cka", (const TTest *[]){metrics_have_names_of_their_own, loss_from_products_is_one_minus_cosine,
                                              loss_of_constants, NULL});
}
