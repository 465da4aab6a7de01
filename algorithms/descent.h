/* GPTQ rounding and the mkq refit as functions, for parts that repeat them (restarts). */
#pragma once

#include "algorithms/part.h"

/* Codes [O, I] of the job by GPTQ on the scales and zeros that it has, with the problem's inverse, columns by falling
 * power [I] (NULL: from left to right); qjob->damp = the damping used.  Takes of ctx->scratch what
 * calm_descent_gptq_memory says.  CALM_ENUMERIC: H is not positive definite. */
calm_status calm_descent_gptq(calm_ctx *ctx, const calm_problem *problem, const double *power, double damp,
                              calm_qjob *qjob);
calm_part_memory calm_descent_gptq_memory(const calm_job_shape *shape);

/* What descents on the same weights and the same damping share; the arrays are the caller's. */
typedef struct calm_descent_shared {
    double *wh;       /* [O, I] W H, which is multiplied once; NULL: every descent multiplies for itself, as with minima
                       * it must, which move W */
    bool known;       /* wh holds it; the first descent sets both */
    double *least;    /* [O] what each row's loss is not below after the last descent; NULL: not wanted */
} calm_descent_shared;

/* Least-squares scales and a sweep of coordinate descent over codes and zeros, in turn, until a row gains nothing or
 * `rounds` are done.  Takes what calm_rows_refit_memory says.  shared: NULL, or of several descents. */
calm_status calm_descent_mkq(calm_ctx *ctx, const calm_problem *problem, long long rounds, double damp,
                             calm_descent_shared *shared, calm_qjob *qjob);
