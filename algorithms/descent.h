/* GPTQ rounding and the mkq refit as functions, for parts that repeat them (restarts). */
#pragma once

#include "algorithms/rows.h"

/* Computes the job's codes [O, I] by GPTQ in float32 for its present scales and zeros, with columns by falling power
 * [I] (NULL: from left to right).  qjob->damp is set to the damping used; loss [O], unless NULL, to the loss of each
 * row under H with that damping.  Overwrites the factor in the problem's inverse, and allocates
 * calm_descent_gptq_memory of ctx->scratch.  CALM_ENUMERIC: H is not positive definite. */
calm_status calm_descent_gptq(calm_ctx *ctx, const calm_problem *problem, const double *power, double damp,
                              double *loss, calm_qjob *qjob);
calm_part_memory calm_descent_gptq_memory(const calm_job_shape *shape);

/* Number of steps of a descent that `path` and `fall` have an entry for: step 0 is after GPTQ; steps 2k + 1 and 2k + 2
 * are after the scales and after the codes of round k.  Later steps use the last entry of `fall`. */
#define CALM_DESCENT_STEPS ((size_t)9)

/* Data that descents with the same weights and damping share; the caller owns the arrays.  Rows that share their scales
 * use only kept, wh and known. */
typedef struct calm_descent_shared {
    const calm_rows_kept *kept;    /* H rounded for products; NULL: every descent rounds it itself */
    double *wh;          /* [O, I] W H, each row computed once; NULL: every descent computes it, which is necessary
                          * with minima, because they change W */
    bool *known;         /* [O] whether the row of wh is computed; descents set wh and known */
    double *least;       /* [O] lower bound of each row's loss after the last descent; NULL: not wanted */
    double *path;        /* [CALM_DESCENT_STEPS, O] loss of each row after each step it reaches; NULL: not wanted */
    double *end;         /* [O] last loss of each row; set with `path` */
    const double *fall;  /* [CALM_DESCENT_STEPS] the lowest ratio (last loss / loss at a step) to expect; NULL: no row
                          * stops early */
    const double *best;  /* [O] the loss that a row must beat; read with `fall` */
    const size_t *row;   /* [n] the rows to descend, needs `kept`; NULL: all rows of the job */
    size_t n;
} calm_descent_shared;

/* Is a row with this loss at this step unlikely to end below its best?  Needs shared->fall. */
static inline bool calm_descent_hopeless(const calm_descent_shared *shared, size_t row, size_t step, double loss)
{
    return !(loss * shared->fall[calm_size_min(step, CALM_DESCENT_STEPS - 1)] < shared->best[row]);
}

/* Alternates least-squares scales and a sweep of coordinate descent over codes and zeros, until a row gains too little
 * or `rounds` rounds are done.  Allocates calm_rows_refit_memory, without what is shared.  shared NULL: nothing is. */
calm_status calm_descent_mkq(calm_ctx *ctx, const calm_problem *problem, long long rounds, double damp,
                             const calm_descent_shared *shared, calm_qjob *qjob);
