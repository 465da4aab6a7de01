/* Activation sparsity by a Gaussian's quantile: the quantile against tables and its definition, and rows against the
 * formula in double. */
#include "ptq/layers/gaussian_top_k.h"

#include <math.h>

#include "tests/support/harness.h"

#define EPS 1.1920929e-7    /* of float32 */

/* Returns the quantile z of a share: 5 less what is left of the value 5 in a row of mean 0 and mean square 1. */
static double quantile(float share)
{
    float x[50] = {5, -5};
    calm_gaussian_top_k(ctx, share, 1, 50, x);
    return 5 - (double)x[0];
}

TEST(quantiles)
{
    /* Abramowitz and Stegun, table 26.5; the share and the result are rounded to float32. */
    const double tolerance = 8 * EPS;
    ck_assert_double_eq_tol(quantile(0.5F), 0, tolerance);
    ck_assert_double_eq_tol(quantile(0.95F), 1.64485362695147, tolerance);
    ck_assert_double_eq_tol(quantile(0.99F), 2.32634787404084, 2 * tolerance);
    ck_assert_double_eq_tol(quantile(0.025F), -1.95996398454005, tolerance);
    /* The inverse, whose slope is at most 0.4. */
    for (float share = 1e-6F; share < 1; share += 0.0137F)
        ck_assert_double_eq_tol(erfc(-quantile(share) * sqrt(0.5)) / 2, (double)share, 0.4 * tolerance);
}
END_OF_TEST

TEST(rows)
{
    enum { N = 70, WIDTH = 129 };
    static float x[N * WIDTH], expected[N * WIDTH];
    static const float shares[] = {0.1F, 0.5F, 0.95F};
    for (size_t k = 0; k < 3; k++) {
        size_t kept = 0;
        const double z = quantile(shares[k]);
        for (size_t i = 0; i < N * WIDTH; i++)
            x[i] = (float)(3 * sin(0.37 * (double)i) + 0.001 * (double)(i % 1000) + 2);
        for (size_t t = 0; t < N; t++) {
            double sum = 0, squares = 0;
            for (size_t i = 0; i < WIDTH; i++)
                sum += (double)x[t * WIDTH + i];
            for (size_t i = 0; i < WIDTH; i++)
                squares += pow((double)x[t * WIDTH + i] - sum / WIDTH, 2);
            const double cut = sum / WIDTH + z * sqrt(squares / WIDTH);
            for (size_t i = 0; i < WIDTH; i++)
                expected[t * WIDTH + i] = (float)fmax((double)x[t * WIDTH + i] - cut, 0);
        }
        for (int threads = 1; threads < 4; threads += 2) {
            static float y[N * WIDTH];
            ctx->n_threads = threads;
            memcpy(y, x, sizeof y);
            calm_gaussian_top_k(ctx, shares[k], N, WIDTH, y);
            /* The cut, at most 12 here, and the difference are rounded once each; z, times a deviation of 3, before
             * them. */
            for (size_t i = 0; i < N * WIDTH; i++) {
                ck_assert_double_eq_tol((double)y[i], (double)expected[i], (2 * 12 + 8 * 3) * EPS);
                kept += threads == 1 && y[i] > 0;
            }
        }
        /* Sines are not Gaussian; a larger share cuts off more nevertheless. */
        ck_assert(kept > 0 && kept < (size_t)((1.05 - (double)shares[k] / 2) * N * WIDTH));
    }
}
END_OF_TEST

TEST(rows_of_one_value)
{
    float x[4] = {2, 2, 2, 2};
    calm_gaussian_top_k(ctx, 0.9F, 1, 4, x);
    for (size_t i = 0; i < 4; i++)
        ck_assert(x[i] == 0);
}
END_OF_TEST

int main(void)
{
    return run_tests("gaussian_top_k", (const TTest *[]){quantiles, rows, rows_of_one_value, NULL});
}
