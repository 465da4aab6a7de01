/* Timing as in MLPerf: enough runs, their median, and no figure if the runs disagree. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Runs that a measurement makes at least; it may stop after CALM_BENCH_SECONDS with CALM_BENCH_RUNS_LEAST runs. */
#define CALM_BENCH_RUNS 10
#define CALM_BENCH_SECONDS 10.0
#define CALM_BENCH_RUNS_LEAST 3

/* Largest spread for which a median counts as a figure. */
#define CALM_BENCH_SPREAD_MAX 0.1

/* Times of n runs: median in seconds, and distance between the quartiles as a fraction of the median. */
typedef struct calm_timing {
    double median, spread;
    size_t n;
} calm_timing;

/* Computes the timing of runs that took `seconds` [n], n >= 1, which it sorts.  Quantile q is interpolated at position
 * q (n - 1) of the sorted times. */
calm_timing calm_timing_of(double *seconds, size_t n);

/* Do the runs agree well enough to quote the median? */
bool calm_timing_is_steady(const calm_timing *timing);

/* May a measurement of `asked` runs stop after n runs that took `seconds` together? */
bool calm_timing_is_enough(size_t n, double seconds, size_t asked);

/* Returns the serial share s of Amdahl's law T(t) = T(1) (s + (1 - s) / t), fitted by least squares to the times
 * `seconds` [n] on `threads` [n], threads[0] = 1.  It is below 0 if t threads are more than t times as fast.  NAN:
 * n < 2, or a time is NAN. */
double calm_timing_serial_share(const int *threads, const double *seconds, size_t n);
