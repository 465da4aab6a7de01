/* The inverse of a job's H, made once for all parts of a chain that read it: the grid's weights, GPTQ in any order. */
#ifndef CALM_ALGORITHMS_INVERSE_H
#define CALM_ALGORITHMS_INVERSE_H

#include "algorithms/part.h"

/* For a chain with a part of CALM_NEEDS_INVERSE; nothing is computed yet.  In ctx->scratch, calm_inverse_bytes. */
calm_status calm_inverse_new(calm_ctx *ctx, const calm_problem *problem, calm_inverse **out);
size_t calm_inverse_bytes(size_t in);

/* Make problem->inverse that of H + damp mean(diag H) I, and its upper Cholesky factor with the columns in `order` [I]
 * (position -> column), which takes the place of the factor before it.  `damp` is doubled until both succeed; *used is
 * the damping that did.  A second order at the same damping costs its own factor alone.
 * CALM_ENUMERIC: H is not positive definite even at 256 times `damp`. */
calm_status calm_inverse_factor(calm_ctx *ctx, const calm_problem *problem, const size_t *order, double damp,
                                double *used);

#endif
