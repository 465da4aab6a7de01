/* INT8 errors against rounding value by value; maxima of subsets against all subsets and against random ones. */
#include "ptq/calib/maxima.h"

#include "ptq/base/rng.h"
#include "tests/support/harness.h"

/* ---- INT8 ---- */

/* Computes the errors by definition, value by value. */
static calm_int8_error plain(const double *x, size_t n, double limit)
{
    const double s = limit / 127;
    double mae = 0, mse = 0, abs = 0, square = 0, clipped = 0;
    for (size_t i = 0; i < n; i++) {
        double code = round(x[i] / s);
        code = code > 127 ? 127 : code < -127 ? -127 : code;
        const double e = s * code - x[i];
        mae += fabs(e);
        mse += e * e;
        abs += fabs(x[i]);
        square += x[i] * x[i];
        clipped += fabs(x[i]) > limit;
    }
    return (calm_int8_error){mae / abs, sqrt(mse / square), 10 * log10(square / mse), clipped / (double)n};
}

static calm_magnitudes measure(const double *x, size_t n, uint64_t *histogram)
{
    calm_histogram bins = {0};
    calm_magnitudes out = {.histogram = histogram, .count = n};
    for (size_t i = 0; i < n; i++) {
        const float single = (float)x[i];
        calm_histogram_add(&bins, &single, 1);
        out.max_abs = fmax(out.max_abs, fabs(x[i]));
        out.mean_abs += fabs(x[i]) / (double)n;
        out.rms += x[i] * x[i] / (double)n;
    }
    out.rms = sqrt(out.rms);
    for (size_t k = 0; k < CALM_ACT_BINS; k++)
        histogram[k] = bins.count[0][k] + bins.count[1][k];
    return out;
}

/* Values that are log-uniform in each bin, as the histogram takes them to be: in bin k, PER values of equal log steps.
 * Then the integral and the sum differ only within a step: |e| changes by at most the step's width h <= x ln(r) / PER,
 * r = 10^(1/32), so that mean |e| differs by at most ln(r) / PER of mean |x|, and rms(e) by as much of rms(x).
 * Values near max_abs: the last bin ends half a step above its largest value. */
#define PER 2000
TEST(a_histogram_gives_the_errors_of_its_values)
{
    static const size_t counts[] = {1, 2, 4, 8, 6, 3, 1};    /* of PER, bins 200, 210, .. 260 */
    static double x[25 * PER + 100];
    static uint64_t histogram[CALM_ACT_BINS];
    const double step = log(10) / 32 / PER;
    size_t n = 0;
    for (size_t b = 0; b < 7; b++)
        for (size_t c = 0; c < counts[b]; c++)
            for (size_t i = 0; i < PER; i++) {
                const double value = pow(10, ((double)(200 + 10 * b) + ((double)i + 0.5) / PER) / 32 - 8);
                x[n++] = i % 2 ? value : -value;
            }
    for (size_t i = 0; i < 100; i++)
        x[n++] = 0;
    const calm_magnitudes tensor = measure(x, n, histogram);
    const double limits[] = {tensor.max_abs, tensor.max_abs / 3, tensor.max_abs / 40};
    for (size_t i = 0; i < 3; i++) {
        const calm_int8_error expected = plain(x, n, limits[i]);
        calm_int8_error found;
        calm_int8_check(&tensor, limits[i], &found);
        ck_near(found.rel_mae, expected.rel_mae, step);
        ck_near(found.rel_rmse, expected.rel_rmse, step);
        /* d(20 log10 r) = 20 / ln 10 dr / r */
        ck_near(found.sqnr, expected.sqnr, 20 / log(10) * step / (expected.rel_rmse - step));
        /* Clipping begins within one step of one bin. */
        ck_near(found.clipped, expected.clipped, 8.0 / (double)n);
    }
}
END_OF_TEST

/* One value, a tensor of it alone: exactly representable with its own maximum as the limit, and clipped to half of it
 * otherwise. */
TEST(a_single_value)
{
    static uint64_t histogram[CALM_ACT_BINS];
    const double x[] = {0.75};
    const calm_magnitudes tensor = measure(x, 1, histogram);
    calm_int8_error found;
    calm_int8_check(&tensor, 0.375, &found);
    /* The bin reaches from its lower bound to 0.75: all of it is clipped, with an error of 0.375 at its top. */
    ck_near(found.clipped, 1, 1e-12);
    ck_assert_msg(found.rel_mae <= 0.5 && found.rel_mae > 0.5 - 0.075, "%g", found.rel_mae);
}
END_OF_TEST

/* ---- subsets ---- */

/* Computes the maximum per window; mean and deviation over all subsets, one by one. */
static calm_subset_maximum every_subset(const double *max_of, size_t n_windows, size_t m)
{
    double sum = 0, squares = 0, n = 0;
    for (unsigned set = 0; set < 1u << n_windows; set++) {
        double max = 0;
        if ((size_t)__builtin_popcount(set) != m)
            continue;
        for (size_t w = 0; w < n_windows; w++)
            if (set >> w & 1)
                max = fmax(max, max_of[w]);
        sum += max;
        squares += max * max;
        n++;
    }
    const double mean = sum / n;
    return (calm_subset_maximum){mean, sqrt(fmax(0, squares / n - mean * mean)) / mean, 0};
}

TEST(subsets_one_by_one)
{
    static const double max_of[] = {5, 1, 9, 3, 3, 8, 2, 4};
    static const double values[] = {9, 8.5, 8, 5, 4, 3, 3, 2, 1};    /* window 2 has two of the largest */
    static const int64_t windows[] = {2, 2, 5, 0, 7, 3, 4, 6, 1};
    for (size_t m = 1; m <= 8; m++) {
        const calm_subset_maximum expected = every_subset(max_of, 8, m);
        calm_subset_maximum found;
        calm_subset_maximum_of(values, windows, 9, 8, m, &found);
        /* Sums of at most 70 subsets; the variance cancels to 1e-16 of squares below 81. */
        ck_near(found.mean, expected.mean, 1e-12);
        ck_near(found.cv, expected.cv, 1e-7);
        ck_near(found.unknown, 0, 1e-15);
    }
    /* Only the two largest windows: the others are at most 8, and with one window drawn 6 of 8 are unknown. */
    calm_subset_maximum found;
    calm_subset_maximum_of(values, windows, 3, 8, 1, &found);
    ck_near(found.unknown, 6.0 / 8, 1e-15);
    ck_near(found.mean, (9 + 8 + 6 * 8) / 8.0, 1e-12);
}
END_OF_TEST

/* What it represents: a bootstrap.  Means of N draws are within 5 standard errors (one in 1.7 million falls outside,
 * and the draws are fixed). */
TEST(subsets_that_are_drawn)
{
    enum { WINDOWS = 64, TAKEN = 8, DRAWS = 4000 };
    double values[WINDOWS], sum = 0;
    int64_t windows[WINDOWS];
    for (size_t w = 0; w < WINDOWS; w++) {
        values[w] = 100.0 / (double)(w + 1);
        windows[w] = (int64_t)(w * 37 % WINDOWS);
    }
    calm_subset_maximum found;
    calm_subset_maximum_of(values, windows, WINDOWS, WINDOWS, TAKEN, &found);
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        size_t taken[TAKEN];
        double max = 0;
        ck_assert(calm_rng_choose(1, draw, WINDOWS, TAKEN, taken));
        for (size_t i = 0; i < TAKEN; i++)
            for (size_t w = 0; w < WINDOWS; w++)
                max = (size_t)windows[w] == taken[i] ? fmax(max, values[w]) : max;
        sum += max;
    }
    ck_near(sum / DRAWS, found.mean, 5 * found.cv * found.mean / sqrt(DRAWS));
}
END_OF_TEST

int main(void)
{
    return run_tests("maxima", (const TTest *[]){a_histogram_gives_the_errors_of_its_values, a_single_value,
                                                 subsets_one_by_one, subsets_that_are_drawn, NULL});
}
