/* Histogram of log10 |x|: 512 bins over [1e-8, 1e8); zeros are counted separately.
 *
 *   bin = floor(32 (log10 |x| + 8)), clipped to 0 .. 511
 *
 * The bin of a float is exact: it is looked up by the float's bits in a table of edges, not computed by a logarithm. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define CALM_ACT_BINS 512

/* A histogram during counting: two interleaved copies, so that successive equal bins do not wait for each other. */
typedef struct calm_histogram {
    uint64_t count[2][CALM_ACT_BINS + 1];    /* the last bin counts zeros */
} calm_histogram;

/* Counts |x_j| of n finite floats. */
void calm_histogram_add(calm_histogram *histogram, const float *x, size_t n);

/* Returns quantile q in (0, 1) of the nonzero |x|, interpolated log-linearly in the histogram; 0 if all are zero. */
double calm_actstat_quantile(const uint64_t histogram[CALM_ACT_BINS], double q);
