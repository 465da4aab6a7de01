/* Importance: sums of squares of the inputs of every job over a calibration text, as in llama.cpp's importance
 * matrix.
 *
 * Collected by ptq/calib/importance.c, written by ptq/export/export_imatrix.c. */
#pragma once

#include <stddef.h>

/* Sums of one job. */
typedef struct calm_job_importance {
    size_t rows;            /* tokens that reached the job              */
    size_t width;           /* I, input features                        */
    const double *sumsq;    /* [I] sum of x^2 over the tokens; NULL: no token */
} calm_job_importance;

typedef struct calm_importance {
    size_t n_jobs;
    const calm_job_importance *jobs;    /* [n_jobs] in the order of the layout  */
    const char *dataset;                /* name of the text, which the file states; "" for none */
    size_t n_windows, window;           /* number of windows; tokens of the longest    */
} calm_importance;
