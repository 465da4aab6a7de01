/* ptq/calib/activation.c: activation statistics against sorting and plain loops, merging, refusals. */
#include "tests/support/harness.h"

#include <float.h>

#include "ptq/base/rng.h"
#include "ptq/calib/activation.h"

static float *random_matrix(uint64_t stream, size_t count)
{
    float *x;
    ck_ok(CALM_NEW(ctx, ctx->out, x, count));
    for (size_t i = 0; i < count; i++)
        x[i] = (float)calm_rng_normal(9, stream, i);
    return x;
}

static calm_actstat_acc added(const float *x, size_t n, size_t d, uint32_t window, size_t capacity)
{
    calm_actstat_acc acc;
    ck_ok(calm_actstat_init(ctx, ctx->out, d, capacity, &acc));
    ck_ok(calm_actstat_add(ctx, &acc, x, n, window, 0));
    return acc;
}

static int compare_floats(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Returns the median of |x| by sorting. */
static double sorted_median(const float *x, size_t n)
{
    float *copy;
    ck_ok(CALM_NEW(ctx, ctx->scratch, copy, n));
    for (size_t i = 0; i < n; i++)
        copy[i] = fabsf(x[i]);
    qsort(copy, n, sizeof *copy, compare_floats);
    return n % 2 ? copy[n / 2] : ((double)copy[n / 2 - 1] + (double)copy[n / 2]) / 2;
}

/* Returns values of several kinds: spread over 60 octaves, with ties, mostly zero, all equal, denormal, the largest
 * float. */
static float value_of_kind(int kind, size_t i)
{
    double u = calm_rng_uniform(4, (uint64_t)kind, i);
    switch (kind) {
    case 0: return (float)exp2(60 * u - 30);
    case 1: return (float)(int)(5 * u);
    case 2: return u < 0.8 ? 0 : (float)u;
    case 3: return 2.5f;
    case 4: return (float)(u * 1e-40);
    case 5: return (float)(u < 0.5 ? 1e-45 : FLT_MAX);
    default: return (float)u;
    }
}

/* Returns the median of tokens of one channel, whose largest |x| is the value itself. */
static float median_of_peaks(const float *x, size_t n)
{
    calm_actstat_acc acc;
    calm_actstat_summary summary;
    ck_ok(calm_actstat_init(ctx, ctx->scratch, 1, n, &acc));
    ck_ok(calm_actstat_add(ctx, &acc, x, n, 0, 0));
    calm_actstat_summarize(&acc, &summary);
    return (float)summary.peak_median;
}

TEST(median_is_exact)
{
    for (int kind = 0; kind < 7; kind++)
        for (size_t n = 1; n < 300; n += n < 20 ? 1 : 23) {
            float x[300];
            for (size_t i = 0; i < n; i++)
                x[i] = value_of_kind(kind, n * 1000 + i);
            float expected = (float)sorted_median(x, n);
            ck_assert_msg(median_of_peaks(x, n) == expected, "kind %d, %zu values: %a, expected %a", kind, n,
                          (double)median_of_peaks(x, n), (double)expected);
        }
}
END_OF_TEST

TEST(figures_of_tokens_and_elements)
{
    for (size_t d = 1; d < 70; d += d < 20 ? 1 : 13) {
        enum { N = 9 };
        float *x = random_matrix(d, N * d);
        calm_actstat_acc acc = added(x, N, d, 0, N);
        double sum = 0, sumsq = 0, sumabs = 0;
        for (size_t t = 0; t < N; t++) {
            double row_sq = 0, peak = 0;
            for (size_t j = 0; j < d; j++) {
                double v = x[t * d + j];
                sum += v;
                row_sq += v * v;
                sumabs += fabs(v);
                peak = fmax(peak, fabs(v));
            }
            sumsq += row_sq;
            ck_assert(acc.peak[t] == (float)peak);
            ck_assert(acc.ratio[t] == (float)(peak / sorted_median(x + t * d, d)));
            ck_near(acc.crest[t], peak / sqrt(row_sq / (double)d), 0x1p-23 * acc.crest[t]);
        }
        ck_near(acc.sum, sum, 1e-12 * sumabs);
        ck_near(acc.sumsq, sumsq, 1e-12 * sumsq);
        ck_near(acc.sumabs, sumabs, 1e-12 * sumabs);
        ck_assert_uint_eq(acc.count, N * d);
        calm_actstat_summary s;
        calm_actstat_summarize(&acc, &s);
        ck_assert(s.max_abs == fmax(-s.min, s.max));
        ck_assert(s.peak_median == sorted_median(acc.peak, N));
        ck_assert(s.ratio_median == sorted_median(acc.ratio, N));
        ck_assert(s.crest_median == sorted_median(acc.crest, N));
    }
}
END_OF_TEST

/* Few magnitudes, so that most of the list is decided by position. */
TEST(the_largest_are_sorted_and_ties_go_by_position)
{
    enum { N = 40, D = 37 };
    float *x = random_matrix(1, N * D);
    for (size_t i = 0; i < N * D; i++)
        x[i] = roundf(x[i] * 2);
    calm_actstat_acc acc = added(x, N, D, 3, N);
    ck_assert_uint_eq(acc.n_top, CALM_ACT_TOP);
    for (size_t i = 0; i < CALM_ACT_TOP; i++) {
        size_t at = acc.top[i].token * D + acc.top[i].channel, before = 0;
        ck_assert(acc.top[i].window == 3 && x[at] == acc.top[i].value);
        for (size_t j = 0; j < N * D; j++)
            before += fabsf(x[j]) > fabsf(x[at]) || (fabsf(x[j]) == fabsf(x[at]) && j < at);
        ck_assert_uint_eq(before, i);
    }
}
END_OF_TEST

TEST(merged_windows_are_one_pass)
{
    enum { N = 60, D = 33, WINDOW = 15 };
    float *x = random_matrix(1, N * D);
    for (size_t i = 0; i < N * D; i++)
        x[i] = roundf(x[i] * 8) / 4;
    calm_actstat_acc whole, merged;
    ck_ok(calm_actstat_init(ctx, ctx->out, D, N, &whole));
    ck_ok(calm_actstat_init(ctx, ctx->out, D, N, &merged));
    for (uint32_t w = 0; w < N / WINDOW; w++) {
        calm_actstat_acc part = added(x + w * WINDOW * D, WINDOW, D, w, WINDOW);
        ck_ok(calm_actstat_add(ctx, &whole, x + w * WINDOW * D, 5, w, 0));
        ck_ok(calm_actstat_add(ctx, &whole, x + (w * WINDOW + 5) * D, WINDOW - 5, w, 5));
        ck_ok(calm_actstat_merge(ctx, &merged, &part));
    }
    ck_assert_mem_eq(whole.histogram, merged.histogram, sizeof whole.histogram);
    ck_assert_mem_eq(whole.top, merged.top, sizeof whole.top);
    ck_assert_mem_eq(whole.peak, merged.peak, N * sizeof *whole.peak);
    ck_assert_mem_eq(whole.ratio, merged.ratio, N * sizeof *whole.ratio);
    ck_assert_mem_eq(whole.crest, merged.crest, N * sizeof *whole.crest);
    ck_assert(whole.sumsq == merged.sumsq);    /* multiples of 1/4: exact in any order */
    ck_assert(whole.count == merged.count && whole.zeros == merged.zeros && whole.zeros > 0);
    ck_assert(whole.min == merged.min && whole.max == merged.max);
    ck_assert_uint_eq(merged.n_tokens, N);
}
END_OF_TEST

TEST(massive_and_silent_tokens)
{
    enum { N = 5, D = 16 };
    float x[N * D] = {0};
    for (size_t j = 0; j < D; j++) {
        x[1 * D + j] = 0.01f;
        x[2 * D + j] = 0.2f;
        x[4 * D + j] = 1;
    }
    x[1 * D + 3] = -150;    /* massive: 15000 times the median */
    x[2 * D + 3] = 150;     /* large, but 750 times the median */
    x[3 * D + 3] = 7;       /* the median is 0              */
    calm_actstat_acc acc = added(x, N, D, 0, N);
    ck_assert_uint_eq(acc.n_massive, 1);
    ck_assert(acc.ratio[0] == 0 && acc.crest[0] == 0);
    ck_assert(acc.ratio[3] == 1e9f && acc.ratio[4] == 1 && acc.crest[4] == 1);
    calm_actstat_summary s;
    calm_actstat_summarize(&acc, &s);
    ck_assert(isfinite(s.ratio_mean) && isfinite(s.ratio_std) && s.max_abs == 150 && s.min == -150);
    ck_assert_uint_eq(s.zeros, D + D - 1);
}
END_OF_TEST

TEST(nothing_added_gives_zeros)
{
    calm_actstat_acc acc = added(NULL, 0, 4, 0, 0);
    calm_actstat_summary s;
    calm_actstat_summarize(&acc, &s);
    ck_assert(s.count == 0 && s.mean == 0 && s.max == 0 && s.quantile[1] == 0 && s.ratio_mean == 0);
}
END_OF_TEST

TEST(bad_values_and_full_accumulators_are_refused)
{
    enum { N = 4, D = 21 };
    const float bad[] = {NAN, INFINITY, -INFINITY};
    calm_actstat_acc acc, other;
    for (int i = 0; i < 3; i++) {
        float *x = random_matrix(1, N * D);
        x[2 * D + 20] = bad[i];
        ck_ok(calm_actstat_init(ctx, ctx->out, D, N, &acc));
        ck_fails(calm_actstat_add(ctx, &acc, x, N, 6, 100), CALM_ENUMERIC, "window 6, token 102, channel 20");
        ck_assert_uint_eq(acc.n_tokens, 2);
        ck_fails(calm_actstat_add(ctx, &acc, x, 3, 0, 0), CALM_EARG, "2 + 3 tokens, room for 4");
    }
    other = added(random_matrix(1, N * D), N, D, 0, N);
    ck_fails(calm_actstat_merge(ctx, &acc, &other), CALM_EARG, "room for 4");
    ck_ok(calm_actstat_init(ctx, ctx->out, D + 1, N, &acc));
    ck_fails(calm_actstat_merge(ctx, &acc, &other), CALM_EARG, "21 channels, expected 22");
    ck_fails(calm_actstat_init(ctx, ctx->out, 0, N, &acc), CALM_EARG, "0 channels");
}
END_OF_TEST

TEST(every_failing_allocation_is_reported)
{
    for (int k = 1; k <= 3; k++) {
        calm_actstat_acc acc;
        ctx->out->fail_in = k;
        ck_fails(calm_actstat_init(ctx, ctx->out, 4, 10, &acc), CALM_ENOMEM, "");
        ctx->out->fail_in = 0;
    }
}
END_OF_TEST

TEST(memory)
{
    calm_actstat_acc acc;
    ck_memory(calm_actstat_init(ctx, ctx->out, 7, 0, &acc), calm_actstat_init_bytes(0), 0);
    ck_memory(calm_actstat_init(ctx, ctx->out, 7, 1000, &acc), calm_actstat_init_bytes(1000), 0);
}
END_OF_TEST

int main(void)
{
    return run_tests("activation",
                     (const TTest *[]){median_is_exact, figures_of_tokens_and_elements,
                                       the_largest_are_sorted_and_ties_go_by_position, merged_windows_are_one_pass,
                                       massive_and_silent_tokens, nothing_added_gives_zeros,
                                       bad_values_and_full_accumulators_are_refused,
                                       every_failing_allocation_is_reported, memory, NULL});
}
