/* GPTQ rounding and the mkq refit as functions, for parts that repeat them (restarts). */
#pragma once

#include "algorithms/rows.h"

/* Codes [O, I] of the job by GPTQ in float on the scales and zeros that it has, columns by falling power [I] (NULL:
 * from left to right); qjob->damp = the damping used; loss [O], unless NULL, = the loss of each row under H with that
 * damping.  Takes the memory of the problem's inverse, and of ctx->scratch what calm_descent_gptq_memory says.
 * CALM_ENUMERIC: H is not positive definite. */
calm_status calm_descent_gptq(calm_ctx *ctx, const calm_problem *problem, const double *power, double damp,
                              double *loss, calm_qjob *qjob);
calm_part_memory calm_descent_gptq_memory(const calm_job_shape *shape);

/* Steps of a descent that are told apart: 0 the codes of GPTQ; 2k + 1 and 2k + 2 scales and codes of round k.  Later
 * ones hope as the last does. */
#define CALM_DESCENT_STEPS ((size_t)9)

/* What descents on the same weights and the same damping share; the arrays are the caller's.  Rows that share their
 * scales use W H alone. */
typedef struct calm_descent_shared {
    const calm_rows_kept *kept;    /* H with this damping; NULL: every descent keeps its own */
    double *wh;          /* [O, I] W H, of which each row is multiplied once; NULL: every descent multiplies for itself,
                          * as with minima it must, which move W */
    bool *known;         /* [O] rows that wh holds; descents set both */
    double *least;       /* [O] what each row's loss is not below after the last descent; NULL: not wanted */
    double *path;        /* [CALM_DESCENT_STEPS, O] losses of each row at the steps that it gets to; NULL: not wanted */
    double *end;         /* [O] with `path`: its last loss */
    const double *fall;  /* [CALM_DESCENT_STEPS] last loss over loss at a step, as low as a row may hope for; NULL: no
                          * row stops for it */
    const double *best;  /* [O] with `fall`: what a row must come below */
    const size_t *row;   /* [n] with `kept`: rows to descend with; NULL: all of the job */
    size_t n;
} calm_descent_shared;

/* Is a row with this loss at this step unlikely to end below its best?  With `fall`. */
static inline bool calm_descent_hopeless(const calm_descent_shared *shared, size_t row, size_t step, double loss)
{
    return !(loss * shared->fall[calm_size_min(step, CALM_DESCENT_STEPS - 1)] < shared->best[row]);
}

/* Least-squares scales and a sweep of coordinate descent over codes and zeros, in turn, until a row gains nothing or
 * `rounds` are done.  Takes what calm_rows_refit_memory says, less what is shared.  shared: NULL, or of several. */
calm_status calm_descent_mkq(calm_ctx *ctx, const calm_problem *problem, long long rounds, double damp,
                             const calm_descent_shared *shared, calm_qjob *qjob);
