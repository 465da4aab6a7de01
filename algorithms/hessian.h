/* H = X^T X / N of a job, computed once for all chains that quantize the job, and one factor of its damped inverse. */
#pragma once

#include "algorithms/algorithm.h"

/* The H of a job that its chains share.  Several chains may read it at the same time; a lent inverse belongs to one
 * chain at a time. */
typedef struct calm_hessian {
    double *h;           /* [I, I] both triangles; the diagonal is damped: `damp` times its mean is added */
    double *diagonal;    /* [I] the diagonal before damping                                              */
    double damp;         /* the damping that most parts read it with                                     */
    bool blind;          /* no input was seen, or only zeros: H is the identity                          */
    bool lent;           /* a chain may put other factors into inverse                                   */
    struct calm_inverse *inverse;    /* a factor of H, or with `lent` room for one; NULL: none           */
} calm_hessian;

/* Compute H in place of the Gram matrix [I, I] of `stats`, which is overwritten; the rest is in ctx->out
 * (calm_hessian_bytes).  CALM_ENUMERIC: the matrix is not finite, or has a negative diagonal; it is not changed. */
calm_status calm_hessian_make(calm_ctx *ctx, const char *name, size_t in, const calm_stats *stats, double *gram,
                              double damp, calm_hessian *out);
size_t calm_hessian_bytes(size_t in);

/* Compute hessian->inverse, the factor in the order of falling diagonal, in ctx->out (calm_inverse_bytes); NULL if H is
 * not positive definite: each chain then reports it. */
calm_status calm_hessian_factor(calm_ctx *ctx, const char *name, size_t in, double damp, calm_hessian *hessian);

/* As calm_algorithm_run, with a shared H (NULL: the chain makes its own) instead of the job's Gram matrix. */
calm_status calm_algorithm_run_shared(calm_ctx *ctx, const calm_algorithm *algorithm, const calm_job *job,
                                      const calm_hessian *shared, calm_qjob *out);

/* Does the chain copy a shared H with this damping, in order to change the copy? */
bool calm_algorithm_copies(const calm_algorithm *algorithm, double damp);

/* ---- for chains ---- */

/* Check a Gram matrix as calm_hessian_make does; *blind as in calm_hessian. */
calm_status calm_hessian_check(calm_ctx *ctx, const char *name, size_t in, const calm_stats *stats, bool *blind);

/* diagonal [I] = the diagonal of the shared H, or if that is NULL of the H of stats. */
void calm_hessian_diagonal(size_t in, const calm_stats *stats, const calm_hessian *shared, bool blind,
                           double *diagonal);

/* h [I, I] = gram / rows, which may be in place, or the identity. */
void calm_hessian_divide(calm_ctx *ctx, size_t in, const double *gram, size_t rows, bool blind, double *h);

/* Diagonal of h [I, I] = diagonal [I] + damp times its mean. */
void calm_hessian_damp(size_t in, const double *diagonal, double damp, double *h);
