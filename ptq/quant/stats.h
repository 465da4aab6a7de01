/* What calibration learned about the input that the linears of a job share.
 *
 *   N rows (tokens)   I input features
 * Collected by ptq/calib/capture.c, read by algorithms/. */
#ifndef CALM_QUANT_STATS_H
#define CALM_QUANT_STATS_H

#include <stddef.h>

typedef struct calm_stats {
    size_t rows;             /* N                                                              */
    const double *gram;      /* [I, I] X^T X (not divided by N), both triangles; or NULL       */
    const float *absmax;     /* [I] max |x|; or NULL                                           */
    const double *sum;       /* [I] sum of x; or NULL                                          */
    const double *sumsq;     /* [I] sum of x^2; or NULL                                        */
    const double *sumabs;    /* [I] sum of |x|; or NULL                                        */
    const float *samples;    /* [n_samples, I] kept rows (calm_sample_count), or NULL */
    size_t n_samples;
} calm_stats;

#endif
