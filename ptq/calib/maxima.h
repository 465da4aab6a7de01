/* Figures derived from the stored maxima of a hook point ("Measuring Maximum Activations", 2605.15572): the INT8 error
 * that one large value causes, and how the maximum depends on the amount of text. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "ptq/calib/histogram.h"

/* The magnitudes |x| of a tensor: histogram of the nonzero values, and exact figures. */
typedef struct calm_magnitudes {
    const uint64_t *histogram;    /* [CALM_ACT_BINS]                       */
    uint64_t count;               /* number of values with zeros, >= 1 */
    double max_abs;               /* > 0                                   */
    double mean_abs, rms;         /* over all values */
} calm_magnitudes;

/* The error of symmetric INT8 with one scale for the whole tensor, s = limit / 127:
 * e = s clip(round(x / s), -127, 127) - x. */
typedef struct calm_int8_error {
    double rel_mae, rel_rmse;     /* mean |e| / mean |x|, rms(e) / rms(x)  */
    double sqnr;                  /* 10 log10(sum x^2 / sum e^2), dB       */
    double clipped;               /* fraction of the values with |x| > limit */
} calm_int8_error;

/* Computes the error from the histogram: |x| is assumed log-uniform within each bin (7.5 % wide), and the error is
 * integrated exactly over the cells of the grid.  The last bin ends at max_abs.  limit > 0. */
void calm_int8_check(const calm_magnitudes *x, double limit, calm_int8_error *out);

/* The maximum over a random subset of the windows. */
typedef struct calm_subset_maximum {
    double mean, cv;              /* mean of the maximum; its standard deviation / mean */
    double unknown;               /* fraction of the subsets without a window of `windows`: for these the least of
                                   * `values` counts, an upper bound of their maximum */
} calm_subset_maximum;

/* Computes mean and cv over all subsets of m of n_windows windows, equally likely: the limit of a bootstrap without
 * replacement, in closed form.  values [n] in falling order: each the largest known |x| of the window in windows [n]; a
 * repeated window is skipped.  1 <= m <= n_windows, n >= 1, windows < n_windows. */
void calm_subset_maximum_of(const double *values, const int64_t *windows, size_t n, size_t n_windows, size_t m,
                            calm_subset_maximum *out);
