/* The inverse of a job's H as the parts of a chain read it: its diagonal the grid, its factor in an order GPTQ. */
#pragma once

#include "algorithms/part.h"

/* Of n inputs, for messages of the job `name`; nothing is computed yet.  In arena, calm_inverse_bytes. */
calm_status calm_inverse_new(calm_ctx *ctx, calm_arena *arena, const char *name, size_t n, calm_inverse **out);
size_t calm_inverse_bytes(size_t in);

/* A factor that another chain left may be read; what it says of the diagonal only where that is of the same order. */
void calm_inverse_begin(calm_inverse *inverse);

/* *u [I, I] = the upper Cholesky factor of (H + damp mean(diag H) I)^-1 with the columns in `order` [I] (position ->
 * column), until the next call: problem->common's or problem->inverse's where one is that already, else it takes the
 * place of the latter.  `damp` is doubled until that succeeds; *used is the damping that did.  CALM_ENUMERIC: H is not
 * positive definite even at 256 times `damp`. */
calm_status calm_inverse_factor(calm_ctx *ctx, const calm_problem *problem, const size_t *order, double damp,
                                const double **u, double *used);

/* Columns in the order of falling power [n], equal ones from left to right; NULL: all from left to right. */
calm_status calm_inverse_order(calm_ctx *ctx, size_t n, const double *power, size_t **out);
size_t calm_inverse_order_bytes(size_t n);

/* What that holds of ctx->scratch while it runs. */
size_t calm_inverse_factor_scratch_bytes(size_t in);
