/* Figures from the maxima of a hook point: INT8 errors, and maxima over subsets of windows. */
#include "ptq/calib/maxima.h"

#include <math.h>
#include <stdbool.h>

#define CODE_MAX 127

/* ---- INT8 ---- */

typedef struct integrals {
    double abs, square;    /* integrals of |e| / x and e^2 / x over a range of x > 0 */
} integrals;

/* Adds the integrals over [u, v], where all x are rounded to q, by the antiderivatives of |x - q| / x and (x - q)^2 /
 * x.  In a piece that is short relative to q, terms cancel to (v - u)^2 / q^2 of their size, at least 1e-5 in a grid
 * cell. */
static void add_piece(double u, double v, double q, integrals *sum)
{
    const double log_ratio = log(v / u);
    sum->square += (v * v - u * u) / 2 - 2 * q * (v - u) + q * q * log_ratio;
    if (q <= u)
        sum->abs += v - u - q * log_ratio;
    else if (q >= v)
        sum->abs += q * log_ratio - (v - u);
    else
        sum->abs += q * log(q / u) - (q - u) + (v - q) - q * log(v / q);
}

/* Integrates over [a, b], cell by cell of the grid with step s; beyond the last code x is rounded to that code. */
static integrals integrate(double a, double b, double s)
{
    integrals sum = {0};
    double code = fmin(floor(a / s + 0.5), CODE_MAX);
    for (double u = a; u < b; code++) {
        const double end = code < CODE_MAX ? (code + 0.5) * s : b;
        /* The first cell's end may be rounded to u itself. */
        const double v = fmin(fmax(end, u), b);
        if (v > u)
            add_piece(u, v, code * s, &sum);
        u = v;
    }
    return sum;
}

/* Adds mean |e|, e^2 and the share above the limit of values that are log-uniform in [a, b], or all b if a == b. */
static void add_bin(double a, double b, double weight, double limit, integrals *error, double *clipped)
{
    const double s = limit / CODE_MAX, width = log(b / a);
    if (!(width > 1e-9)) {
        const double e = fmin(floor(b / s + 0.5), CODE_MAX) * s - b;
        error->abs += weight * fabs(e);
        error->square += weight * e * e;
        *clipped += b > limit ? weight : 0;
        return;
    }
    const integrals sum = integrate(a, b, s);
    error->abs += weight * sum.abs / width;
    error->square += weight * sum.square / width;
    if (b > limit)
        *clipped += weight * (a > limit ? 1 : log(b / limit) / width);
}

void calm_int8_check(const calm_magnitudes *x, double limit, calm_int8_error *out)
{
    integrals error = {0};
    double clipped = 0;
    size_t last = CALM_ACT_BINS;
    while (last > 0 && x->histogram[last - 1] == 0)
        last--;
    for (size_t k = 0; k < last; k++) {
        const double a = pow(10, (double)k / 32 - 8), end = pow(10, (double)(k + 1) / 32 - 8);
        /* The last bin ends at the maximum; values outside the histogram are counted in its end bins. */
        const double b = k + 1 == last ? x->max_abs : end;
        if (x->histogram[k])
            add_bin(fmin(a, b), b, (double)x->histogram[k], limit, &error, &clipped);
    }
    const double n = (double)x->count;
    *out = (calm_int8_error){.rel_mae = error.abs / n / x->mean_abs, .rel_rmse = sqrt(error.square / n) / x->rms,
                             .sqnr = 10 * log10(x->rms * x->rms * n / error.square), .clipped = clipped / n};
}

/* ---- subsets of windows ---- */

static bool seen_before(const int64_t *windows, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (windows[k] == windows[i])
            return true;
    return false;
}

void calm_subset_maximum_of(const double *values, const int64_t *windows, size_t n, size_t n_windows, size_t m,
                            calm_subset_maximum *out)
{
    /* A value is the maximum if its window is drawn and none of those before it is.  Two passes, because the deviation
     * may be small relative to the mean. */
    double mean = 0, square = 0, left = 1;
    for (int pass = 0; pass < 2; pass++) {
        size_t before = 0;
        left = 1;
        for (size_t i = 0; i < n; i++) {
            if (seen_before(windows, i))
                continue;
            /* m of the remaining windows are drawn: each is drawn for certain if only m remain. */
            const double drawn = left * fmin(1, (double)m / (double)(n_windows - before++));
            pass ? (square += drawn * (values[i] - mean) * (values[i] - mean)) : (mean += drawn * values[i]);
            left -= drawn;
        }
        left = fmax(left, 0);
        const double least = values[n - 1];
        pass ? (square += left * (least - mean) * (least - mean)) : (mean += left * least);
    }
    *out = (calm_subset_maximum){.mean = mean, .cv = mean > 0 ? sqrt(square) / mean : 0, .unknown = left};
}
