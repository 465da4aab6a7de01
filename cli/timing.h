/* Timing as in MLPerf: enough runs, their median, and no figure if the runs disagree. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* At least this many runs are asked for; after this many seconds and runs no more are needed. */
#define CALM_BENCH_RUNS 10
#define CALM_BENCH_SECONDS 10.0
#define CALM_BENCH_RUNS_LEAST 3

/* A spread above this gives no figure. */
#define CALM_BENCH_SPREAD_MAX 0.1

/* Times of n runs: the median, and the distance between the quartiles as a fraction of the median. */
typedef struct calm_timing {
    double median, spread;
    size_t n;
} calm_timing;

/* Sorts `seconds` [n], n >= 1.  Quartiles are interpolated: q (n - 1) steps from the smallest. */
calm_timing calm_timing_of(double *seconds, size_t n);

/* Do the runs agree well enough to quote the median? */
bool calm_timing_is_steady(const calm_timing *timing);

/* Are n runs that took `seconds` together enough, where `asked` runs are? */
bool calm_timing_is_enough(size_t n, double seconds, size_t asked);

/* Serial share s of T(t) = T(1) (s + (1 - s) / t), Amdahl's law, by least squares over n numbers of threads, the first
 * of which is 1, and their seconds.  It is below 0 where threads gain more than their number.  NAN: n < 2, or a time is
 * NAN. */
double calm_timing_serial_share(const int *threads, const double *seconds, size_t n);
