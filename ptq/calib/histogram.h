/* Histogram of log10 |x|: 512 bins over [1e-8, 1e8), zeros apart.
 *
 *   bin = floor(32 (log10 |x| + 8)), clipped to 0 .. 511
 *
 * The bin of a float is exact: it is found from the float's bits by a table of edges, not by a logarithm. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define CALM_ACT_BINS 512

/* A histogram being filled: two interleaved copies, so that neighbouring equal bins do not wait for each other. */
typedef struct calm_histogram {
    uint64_t count[2][CALM_ACT_BINS + 1];    /* the last bin counts zeros */
} calm_histogram;

/* Add |x_j| for n finite floats. */
void calm_histogram_add(calm_histogram *histogram, const float *x, size_t n);

/* Quantile q in (0, 1) of |x|, zeros apart, by log-linear interpolation in the histogram; 0 when all are zero. */
double calm_actstat_quantile(const uint64_t histogram[CALM_ACT_BINS], double q);
