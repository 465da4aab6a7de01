/* H = X^T X / N of a job, computed once for all chains that quantize the job, and one factor of its damped inverse. */
#pragma once

#include "algorithms/algorithm.h"

/* The H of a job that its chains share.  Several chains may read it at the same time; a lent inverse belongs to one
 * chain at a time. */
typedef struct calm_hessian {
    double *h;           /* [I, I] both triangles; `damp` times the mean diagonal is added to the diagonal */
    double *diagonal;    /* [I] the diagonal before damping                                              */
    double damp;         /* the damping that most parts use                                              */
    bool blind;          /* calibration saw no input, or only zeros: H is the identity                   */
    bool lent;           /* a chain may overwrite the factor in inverse                                  */
    struct calm_inverse *inverse;    /* a factor of H^-1, or with `lent` memory for one; NULL: none      */
} calm_hessian;

/* Computes H in place of the Gram matrix [I, I] of `stats`; the diagonal is allocated in ctx->out
 * (calm_hessian_bytes).  CALM_ENUMERIC: the matrix is not finite, or has a negative diagonal; it is not changed. */
calm_status calm_hessian_make(calm_ctx *ctx, const char *name, size_t in, const calm_stats *stats, double *gram,
                              double damp, calm_hessian *out);
size_t calm_hessian_bytes(size_t in);

/* Computes hessian->inverse, the factor with columns by falling diagonal, in ctx->out (calm_inverse_bytes).  If H is
 * not positive definite, it leaves NULL, and each chain reports the error. */
calm_status calm_hessian_factor(calm_ctx *ctx, const char *name, size_t in, double damp, calm_hessian *hessian);

/* Does what calm_algorithm_run does, with a shared H instead of the job's Gram matrix; NULL: the chain computes H. */
calm_status calm_algorithm_run_shared(calm_ctx *ctx, const calm_algorithm *algorithm, const calm_job *job,
                                      const calm_hessian *shared, calm_qjob *out);

/* Does the chain copy a shared H with this damping, in order to change the copy? */
bool calm_algorithm_copies(const calm_algorithm *algorithm, double damp);

/* ---- for chains ---- */

/* Checks a Gram matrix as calm_hessian_make does; sets *blind as in calm_hessian. */
calm_status calm_hessian_check(calm_ctx *ctx, const char *name, size_t in, const calm_stats *stats, bool *blind);

/* Copies the undamped diagonal of the shared H, or if that is NULL of the H of stats, to diagonal [I]. */
void calm_hessian_diagonal(size_t in, const calm_stats *stats, const calm_hessian *shared, bool blind,
                           double *diagonal);

/* Computes h [I, I] = gram / rows, or if `blind` the identity; h may be gram. */
void calm_hessian_divide(calm_ctx *ctx, size_t in, const double *gram, size_t rows, bool blind, double *h);

/* Sets the diagonal of h [I, I] to diagonal [I] + damp times its mean. */
void calm_hessian_damp(size_t in, const double *diagonal, double damp, double *h);
