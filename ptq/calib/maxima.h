/* Figures derived from the stored maxima of a hook point ("Measuring Maximum Activations", 2605.15572): the INT8 error
 * that one large value causes, and how the maximum depends on the amount of text. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "ptq/calib/histogram.h"

/* A tensor's |x|: its histogram, zeros apart, and exact figures next to it. */
typedef struct calm_magnitudes {
    const uint64_t *histogram;    /* [CALM_ACT_BINS]                       */
    uint64_t count;               /* values, zeros too; >= 1               */
    double max_abs;               /* > 0                                   */
    double mean_abs, rms;         /* of all values                         */
} calm_magnitudes;

/* The error of symmetric INT8 with one scale for the whole tensor, s = limit / 127:
 * e = s clip(round(x / s), -127, 127) - x. */
typedef struct calm_int8_error {
    double rel_mae, rel_rmse;     /* mean |e| / mean |x|, rms(e) / rms(x)  */
    double sqnr;                  /* 10 log10(sum x^2 / sum e^2), dB       */
    double clipped;               /* share of the values with |x| > limit  */
} calm_int8_error;

/* From the histogram: |x| is taken to be log-uniform within each of its bins, which are 7.5 % wide, and the error is
 * integrated exactly over the cells of the grid.  The largest bin ends at max_abs.  0 < limit. */
void calm_int8_check(const calm_magnitudes *x, double limit, calm_int8_error *out);

/* The maximum over some windows of all. */
typedef struct calm_subset_maximum {
    double mean, cv;              /* of the maximum; standard deviation / mean                         */
    double unknown;               /* share of the subsets that hold no window of `windows`: they count with the
                                   * least of `values`, which their maximum does not exceed            */
} calm_subset_maximum;

/* Over all subsets of m of n_windows windows, equally likely: what a bootstrap without replacement tends to, in closed
 * form.  values [n] fall, each the largest |x| known of the window in `windows` [n]; a window that comes again is
 * skipped.  1 <= m <= n_windows, n >= 1, windows < n_windows. */
void calm_subset_maximum_of(const double *values, const int64_t *windows, size_t n, size_t n_windows, size_t m,
                            calm_subset_maximum *out);
