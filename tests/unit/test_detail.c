/* Quantiles of the divergence, and means by position, by their definition. */
#include "ptq/eval/detail.h"

#include "ptq/base/rng.h"
#include "tests/support/harness.h"

#define MOST 200

/* Makes windows of these lengths, with any ids. */
static calm_windows windows_of(const size_t *lengths, size_t n)
{
    calm_windows out = {.n = n};
    ck_ok(CALM_NEW(ctx, ctx->out, out.begin, n + 1));
    for (size_t w = 0; w < n; w++) {
        out.begin[w + 1] = out.begin[w] + lengths[w];
        out.longest = lengths[w] > out.longest ? lengths[w] : out.longest;
    }
    return out;
}

/* Checks a quantile: at least this share of n values is at most `value`, and a smaller share is below it. */
static void check_quantile(const double *kl, size_t n, double share, double value)
{
    size_t below = 0, at_most = 0;
    for (size_t i = 0; i < n; i++) {
        below += kl[i] < value;
        at_most += kl[i] <= value;
    }
    ck_assert((double)at_most >= share * (double)n && (double)below < share * (double)n);
}

TEST(by_definition)
{
    static const size_t lengths[] = {1, 9, 2, 40, 33, 0, 17};
    const calm_windows windows = windows_of(lengths, sizeof lengths / sizeof *lengths);
    double kl[MOST], sum[7] = {0};
    size_t n = 0, tokens[7] = {0};
    calm_eval_detail detail;
    for (size_t w = 0; w < windows.n; w++)
        for (size_t t = 1; t < lengths[w]; t++, n++) {
            size_t bin = 0;
            while ((size_t)2 << bin <= t)
                bin++;
            kl[n] = exp(calm_rng_normal(3, 0, n));
            sum[bin] += kl[n];
            tokens[bin]++;
        }
    ck_ok(calm_evaluate_detail(ctx, &windows, kl, &detail));
    check_quantile(kl, n, 0.5, detail.quantile[CALM_EVAL_p50]);
    check_quantile(kl, n, 0.9, detail.quantile[CALM_EVAL_p90]);
    check_quantile(kl, n, 0.99, detail.quantile[CALM_EVAL_p99]);
    check_quantile(kl, n, 1, detail.quantile[CALM_EVAL_max]);
    ck_assert_uint_eq(detail.n_bins, 6);    /* 1, 2-3, 4-7, 8-15, 16-31, 32-39 */
    ck_assert(detail.bins[5].begin == 32 && detail.bins[5].end == 40 && detail.bins[2].begin == 4 &&
              detail.bins[2].end == 8);
    for (size_t b = 0; b < 6; b++) {
        ck_assert_uint_eq(detail.bins[b].tokens, tokens[b]);
        ck_near(detail.bins[b].kl, sum[b] / (double)tokens[b], 1e-12 * sum[b]);
    }
}
END_OF_TEST

TEST(nothing_predicted)
{
    static const size_t lengths[] = {1, 1};
    const calm_windows windows = windows_of(lengths, 2);
    calm_eval_detail detail;
    const double none = 0;
    ck_ok(calm_evaluate_detail(ctx, &windows, &none, &detail));
    ck_assert(detail.n_bins == 0 && isnan(detail.quantile[CALM_EVAL_max]));
}
END_OF_TEST

int main(void)
{
    return run_tests("detail", (const TTest *[]){by_definition, nothing_predicted, NULL});
}
