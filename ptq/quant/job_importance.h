/* Importance: sums of squares of the inputs of every job over a calibration text, as in llama.cpp's importance
 * matrix.
 *
 * Collected by ptq/calib/importance.c, written by ptq/export/export_imatrix.c. */
#pragma once

#include <stddef.h>

/* Of one job. */
typedef struct calm_job_importance {
    size_t rows;            /* tokens that were seen                    */
    size_t width;           /* I                                        */
    const double *sumsq;    /* [I] sum of x^2 over them; NULL: no token */
} calm_job_importance;

typedef struct calm_importance {
    size_t n_jobs;
    const calm_job_importance *jobs;    /* [n_jobs] numbered as in the layout   */
    const char *dataset;                /* name of the text, for the file; "" for none */
    size_t n_windows, window;           /* how many windows, and tokens of the longest */
} calm_importance;
