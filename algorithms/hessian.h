/* H = X^T X / N of a job, made once for all chains that quantize it, and one factor of its damped inverse. */
#pragma once

#include "algorithms/algorithm.h"

/* What chains share.  They read it, and may run at once; a lent inverse is for one of them at a time. */
typedef struct calm_hessian {
    double *h;           /* [I, I] both triangles; `damp` times the mean of its diagonal is added to that */
    double *diagonal;    /* [I] before that                                                              */
    double damp;         /* the damping that most parts read it with                                     */
    bool blind;          /* no input was seen, or only zeros: H is the identity                          */
    bool lent;           /* a chain may put other factors into inverse                                   */
    struct calm_inverse *inverse;    /* a factor of H, or with `lent` room for one; NULL: none           */
} calm_hessian;

/* H in place of the Gram matrix [I, I] that stats has, which nobody may read as such any more; the rest in ctx->out,
 * calm_hessian_bytes.  CALM_ENUMERIC: the matrix is not finite, or has a negative diagonal; it is left as it is. */
calm_status calm_hessian_make(calm_ctx *ctx, const char *name, size_t in, const calm_stats *stats, double *gram,
                              double damp, calm_hessian *out);
size_t calm_hessian_bytes(size_t in);

/* inverse = the factor in the order of falling diagonal, in ctx->out, calm_inverse_bytes; NULL where H is not positive
 * definite: then each chain says so. */
calm_status calm_hessian_factor(calm_ctx *ctx, const char *name, size_t in, double damp, calm_hessian *hessian);

/* As calm_algorithm_run, with such an H (NULL: the chain makes its own) instead of the job's Gram matrix. */
calm_status calm_algorithm_run_shared(calm_ctx *ctx, const calm_algorithm *algorithm, const calm_job *job,
                                      const calm_hessian *shared, calm_qjob *out);

/* Does such a chain make a copy of an H that is damped so, to change it? */
bool calm_algorithm_copies(const calm_algorithm *algorithm, double damp);

/* ---- for chains ---- */

/* The same check of a Gram matrix; *blind as above. */
calm_status calm_hessian_check(calm_ctx *ctx, const char *name, size_t in, const calm_stats *stats, bool *blind);

/* diagonal [I] of H: of a shared one, or (NULL) of stats. */
void calm_hessian_diagonal(size_t in, const calm_stats *stats, const calm_hessian *shared, bool blind,
                           double *diagonal);

/* h [I, I] = gram / rows, which may be in place, or the identity. */
void calm_hessian_divide(calm_ctx *ctx, size_t in, const double *gram, size_t rows, bool blind, double *h);

/* Diagonal of h [I, I] = diagonal [I] + damp times its mean. */
void calm_hessian_damp(size_t in, const double *diagonal, double damp, double *h);
