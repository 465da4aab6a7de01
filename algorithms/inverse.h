/* The inverse of a job's H for the parts of a chain: grids read its diagonal, GPTQ its factor in a column order. */
#pragma once

#include "algorithms/part.h"
#include "ptq/tensor/packed.h"

/* Make room for the inverse of n inputs in `arena` (calm_inverse_bytes), without computing it; messages say `name`. */
calm_status calm_inverse_new(calm_ctx *ctx, calm_arena *arena, const char *name, size_t n, calm_inverse **out);
size_t calm_inverse_bytes(size_t in);

/* Begin a chain: it may read a factor that another chain left, but `left` only if it is of the same order. */
void calm_inverse_begin(calm_inverse *inverse);

/* *u [I, I] = the upper Cholesky factor of (H + damp mean(diag H) I)^-1 with the columns in `order` [I] (position ->
 * column), valid until the next call.  If problem->common or problem->inverse already has this factor, it is used; else
 * it is computed and replaces the one in problem->inverse.  `damp` is doubled until the factorisation succeeds; *used
 * is the damping used.  CALM_ENUMERIC: H is not positive definite even at 256 times `damp`. */
calm_status calm_inverse_factor(calm_ctx *ctx, const calm_problem *problem, const size_t *order, double damp,
                                const double **u, double *used);

/* R upper in float: R R^T = unit (a power of two) times the damped H in some order of the columns. */
typedef struct calm_root_float {
    const float *r;        /* [I, I]                                                                */
    double unit;
    bool packs;            /* products with R read it packed: calm_packed_fits                      */
    calm_packed packed;    /* then: the same, columns j from row j / CALM_PACKED_STEP * CALM_PACKED_STEP up */
} calm_root_float;

/* In the order above: the inverse of the factor above times the root of the unit.  It is always computed, in the place
 * of the factor in problem->inverse; what that holds besides (`left`) stays. */
calm_status calm_inverse_root_float(calm_ctx *ctx, const calm_problem *problem, const size_t *order, double damp,
                                    calm_root_float *out, double *used);

/* *out [n] = the columns in the order of falling power [n], equal ones from left to right; power NULL: from left to
 * right. */
calm_status calm_inverse_order(calm_ctx *ctx, size_t n, const double *power, size_t **out);
size_t calm_inverse_order_bytes(size_t n);

/* Bytes that they hold of ctx->scratch while they run. */
size_t calm_inverse_factor_scratch_bytes(size_t in);
size_t calm_inverse_root_float_scratch_bytes(calm_operands operands, size_t in);
