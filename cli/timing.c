/* Computes median and spread of times. */
#include "cli/timing.h"

#include <math.h>
#include <stdlib.h>

#include "ptq/base/array.h"

static double quantile(const double *sorted, size_t n, double q)
{
    const double at = q * (double)(n - 1);
    const size_t low = (size_t)at, high = low + 1 < n ? low + 1 : low;
    return sorted[low] + (at - (double)low) * (sorted[high] - sorted[low]);
}

calm_timing calm_timing_of(double *seconds, size_t n)
{
    qsort(seconds, n, sizeof *seconds, calm_compare_doubles);
    const double median = quantile(seconds, n, 0.5), middle = quantile(seconds, n, 0.75) - quantile(seconds, n, 0.25);
    return (calm_timing){median, middle > 0 ? middle / median : 0, n};
}

bool calm_timing_is_steady(const calm_timing *timing)
{
    return timing->n > 0 && timing->spread <= CALM_BENCH_SPREAD_MAX;
}

bool calm_timing_is_enough(size_t n, double seconds, size_t asked)
{
    return n >= asked || (n >= CALM_BENCH_RUNS_LEAST && seconds >= CALM_BENCH_SECONDS);
}

double calm_timing_serial_share(const int *threads, const double *seconds, size_t n)
{
    double above = 0, below = 0;
    for (size_t i = 1; i < n; i++) {
        /* T(t) / T(1) - 1/t = s (1 - 1/t) */
        const double rest = 1 - 1.0 / threads[i];
        above += (seconds[i] / seconds[0] - 1.0 / threads[i]) * rest;
        below += rest * rest;
    }
    return n < 2 ? NAN : above / below;
}
