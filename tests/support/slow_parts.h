/* Shared by slow versions of parts: a random job, and arithmetic after docs/method.md sections 1 and 4 that uses none
 * of the code under test.  Memory lives until the end of the test. */
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

/* Computes the statistics again after a change of x. */
void slow_problem_measure(slow_problem *p);

/* Quantizes the job by `chain`, which must succeed. */
calm_qjob slow_run(const slow_problem *p, const char *chain);

/* Returns n zeros. */
double *slow_doubles(size_t n);

/* Rounds a token x [n] to the values y [n] that the scheme can hold, in float32 by docs/method.md section 1. */
void slow_token(const calm_scheme *scheme, const float *x, size_t n, float *y);

/* Returns H + 0.01 mean(diag H) I. */
double *slow_damped(const slow_problem *p);

/* Returns the nearest storable scale. */
float slow_storable(double s);

/* Returns the zero point of group g of row r. */
size_t slow_zero(const calm_qjob *qjob, size_t r, size_t g);

/* Rounds `value`, in units of the scale, to a code, and returns the code minus the zero point. */
double slow_rounded(const calm_scheme *scheme, double value, size_t zero);

/* Computes the grid `absmax` of w [n]. */
void slow_absmax(const calm_scheme *scheme, const double *w, size_t n, float *scale, size_t *zero);

/* Computes the grids mse, hmse (h given, h[j * stride] for column j), ls and hls (refine) of w [n]: the best of the
 * spans, then least squares while it helps.  Returns the scale; *zero: the zero point. */
float slow_search(const calm_scheme *scheme, const float *w, const double *h, size_t stride, size_t n, bool both,
                  bool refine, size_t *zero);

/* Returns (w - s q) H (w - s q)^T of one row. */
double slow_loss(const double *h, const float *w, const double *q, const float *scale, size_t in, size_t group);

/* Does coordinate descent in column j of row r; q [I] are codes minus zero points. */
void slow_sweep_column(const calm_qjob *qjob, size_t r, const double *h, const float *w, double *q, const float *scale,
                       size_t j);

/* Does one sweep of coordinate descent over row r; q [I] are codes minus zero points. */
void slow_sweep(const calm_qjob *qjob, size_t r, const double *h, const float *w, double *q, const float *scale);

/* Solves A X = B, B [n, m], by elimination without pivoting; overwrites a, and b becomes X. */
void slow_solve(double *a, double *b, size_t n, size_t m);

/* Computes fitted [O, I] = w + alpha (w T^T - w), T = (H + l I)^-1 (C + l I), l = lambda mean diag H, and bounds of the
 * difference to other double sums of this definition, error [O, I].  H = E[a a^T] and C = E[a b^T] are means over
 * `rows` rows; power [I]: E b_j^2. */
typedef struct slow_fit {
    size_t rows;
    const double *h, *c, *power;
    double lambda, alpha;
    double *fitted, *error;
} slow_fit;

void slow_fit_weights(slow_fit *fit, const float *w, size_t out, size_t in);

/* Runs the transform `step`, for example "asym(alpha=1)", on the job with its weights and H scaled by in_scale (NULL:
 * ones); its float32 weights must be fit->fitted, rounded once. */
void slow_check_fit(const slow_problem *p, const char *step, float *in_scale, const slow_fit *fit);

/* Returns the inverse of a [n, n] by Gauss-Jordan without pivoting: the matrix is positive definite. */
double *slow_inverted(const double *a, size_t n);

/* Removes column j from an inverse [n, n]: the rest is the inverse of the matrix without row and column j. */
void slow_eliminate(double *inverse, size_t n, size_t j);

/* A row's losses during a descent: at its start, after scales, after codes, and so on. */
#define SLOW_STEPS 17
typedef struct slow_path {
    double loss[SLOW_STEPS];
    int n;
    const double *fall;    /* [SLOW_STEPS] the row stops if loss * fall is not below `best`; NULL: it never stops */
    double best;
} slow_path;

/* Repeats rounds of scales and, if asked, sweeps of row r until a round gains almost nothing.  path: NULL, or
 * output. */
void slow_descent(const calm_qjob *qjob, size_t r, const double *h, const float *w, double *q, float *scale,
                  int rounds, bool sweeps, slow_path *path);

/* Computes s [I] from raw scales [I], 0 for a dead channel: the geometric mean of each group of shared channels,
 * divided by that of all live channels; 1 for dead ones. */
void slow_channel_scales(const slow_problem *p, const double *raw, double *s);

/* The relative error of s, which a chain rounds to float32.  Before that both are in double, where roundings of I
 * logarithms of at most 12 and of a few functions are below 2^-40. */
#define SLOW_SCALE_ERROR (0x1p-24 + 0x1p-40)

/* Fails the test unless all codes minus zero points are q [O, I]. */
void slow_check_codes(const calm_qjob *qjob, const double *q);

#endif
