/* What slow versions of parts share: a random job, and arithmetic written from docs/method.md sections 1 and 4 without
 * any of the code under test.  Memory lives until the end of the test. */
#ifndef CALM_TESTS_SLOW_PARTS_H
#define CALM_TESTS_SLOW_PARTS_H

#include "algorithms/part.h"
#include "tests/support/harness.h"

/* A job of one linear with random weights and correlated inputs of unequal size. */
typedef struct slow_problem {
    size_t out, in, rows;
    float *w;         /* [O, I]           */
    float *x;         /* [rows, I]        */
    double *h;        /* [I, I] X^T X / N */
    calm_linear linear;
    calm_stats stats;
    calm_job job;
} slow_problem;

void slow_problem_new(slow_problem *p, size_t out, size_t in, size_t rows, const char *scheme);

/* The statistics from x, after a change to it. */
void slow_problem_measure(slow_problem *p);

/* What `chain` makes of the job; it must succeed. */
calm_qjob slow_run(const slow_problem *p, const char *chain);

/* n zeros. */
double *slow_doubles(size_t n);

/* A token x [n] to the values that the scheme can hold, in float32 as docs/method.md section 1 says. */
void slow_token(const calm_scheme *scheme, const float *x, size_t n, float *y);

/* H + 0.01 mean(diag H) I. */
double *slow_damped(const slow_problem *p);

/* Nearest storable scale. */
float slow_storable(double s);

/* Zero of group g of row r. */
size_t slow_zero(const calm_qjob *qjob, size_t r, size_t g);

/* Code less zero of a value in steps. */
double slow_rounded(const calm_scheme *scheme, double value, size_t zero);

/* The grid `absmax` of w [n]. */
void slow_absmax(const calm_scheme *scheme, const double *w, size_t n, float *scale, size_t *zero);

/* The grids mse, hmse (h given, h[j * stride] of column j), ls and hls (refine): the best of the spans of w [n], then
 * least squares while it helps; scale, and *zero. */
float slow_search(const calm_scheme *scheme, const float *w, const double *h, size_t stride, size_t n, bool both,
                  bool refine, size_t *zero);

/* (w - s q) H (w - s q)^T of one row. */
double slow_loss(const double *h, const float *w, const double *q, const float *scale, size_t in, size_t group);

/* Coordinate descent in column j of row r, q [I] codes less zeros. */
void slow_sweep_column(const calm_qjob *qjob, size_t r, const double *h, const float *w, double *q, const float *scale,
                       size_t j);

/* One sweep of coordinate descent over row r, q [I] codes less zeros. */
void slow_sweep(const calm_qjob *qjob, size_t r, const double *h, const float *w, double *q, const float *scale);

/* X of A X = B, B [n, m], by elimination without pivoting; a is spoiled, b becomes X. */
void slow_solve(double *a, double *b, size_t n, size_t m);

/* Inverse of a [n, n] by Gauss-Jordan without pivoting: the matrix is positive definite. */
double *slow_inverted(const double *a, size_t n);

/* Take column j out of an inverse [n, n]: what is left is the inverse of the matrix without row and column j. */
void slow_eliminate(double *inverse, size_t n, size_t j);

/* A row's losses at the steps of a descent: at its start, after scales, after codes, and so on. */
#define SLOW_STEPS 17
typedef struct slow_path {
    double loss[SLOW_STEPS];
    int n;
    const double *fall;    /* [SLOW_STEPS] NULL: the row goes on; else it stops where loss * fall is not below `best` */
    double best;
} slow_path;

/* Rounds of scales and, if asked, sweeps of row r until one gains next to nothing.  path: NULL, or written. */
void slow_descent(const calm_qjob *qjob, size_t r, const double *h, const float *w, double *q, float *scale,
                  int rounds, bool sweeps, slow_path *path);

/* s [I] of raw scales [I], 0 for a dead channel: the geometric mean of each group of shared channels, divided by that
 * of all live channels; 1 for dead ones. */
void slow_channel_scales(const slow_problem *p, const double *raw, double *s);

/* Fail the test unless all codes less zeros are q [O, I]. */
void slow_check_codes(const calm_qjob *qjob, const double *q);

#endif
