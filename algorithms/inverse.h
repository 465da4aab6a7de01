/* The inverse of a job's H as the parts of a chain read it: its diagonal the grid, its factor in an order GPTQ. */
#ifndef CALM_ALGORITHMS_INVERSE_H
#define CALM_ALGORITHMS_INVERSE_H

#include "algorithms/part.h"

/* For a chain with a part of CALM_NEEDS_INVERSE; nothing is computed yet.  In ctx->scratch, calm_inverse_bytes. */
calm_status calm_inverse_new(calm_ctx *ctx, const calm_problem *problem, calm_inverse **out);
size_t calm_inverse_bytes(size_t in);

/* problem->inverse->u = the upper Cholesky factor of (H + damp mean(diag H) I)^-1 with the columns in `order` [I]
 * (position -> column), which takes the place of the one before it.  `damp` is doubled until that succeeds; *used is
 * the damping that did.  CALM_ENUMERIC: H is not positive definite even at 256 times `damp`. */
calm_status calm_inverse_factor(calm_ctx *ctx, const calm_problem *problem, const size_t *order, double damp,
                                double *used);

/* What that holds of ctx->scratch while it runs. */
size_t calm_inverse_factor_scratch_bytes(size_t in);

#endif
