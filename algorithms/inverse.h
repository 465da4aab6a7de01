/* The inverse of a job's H for the parts of a chain: grids read its diagonal, GPTQ reads its factor in a column
 * order. */
#pragma once

#include "algorithms/part.h"
#include "ptq/tensor/packed.h"

/* Allocates the inverse of n inputs in `arena` (calm_inverse_bytes), without computing it; messages begin with
 * `name`. */
calm_status calm_inverse_new(calm_ctx *ctx, calm_arena *arena, const char *name, size_t n, calm_inverse **out);
size_t calm_inverse_bytes(size_t in);

/* Prepares a lent inverse for the next chain, which may read the factor of the chain before; `left` is discarded unless
 * it was computed from this factor. */
void calm_inverse_begin(calm_inverse *inverse);

/* Computes *u [I, I], the upper Cholesky factor of (H + damp mean(diag H) I)^-1 with the columns in `order` [I] (the
 * column at each position), valid until the next call.  If problem->common or problem->inverse already has this factor,
 * that one is returned; else the new factor replaces the one in problem->inverse.  `damp` is doubled until the
 * factorisation succeeds; *used is the damping used.  CALM_ENUMERIC: H is not positive definite even at 256 times
 * `damp`. */
calm_status calm_inverse_factor(calm_ctx *ctx, const calm_problem *problem, const size_t *order, double damp,
                                const double **u, double *used);

/* The upper triangular root R in float32, R R^T = unit times the damped H in some order of the columns. */
typedef struct calm_root_float {
    const float *r;        /* [I, I]                                                                */
    double unit;           /* a power of two                                                        */
    bool packs;            /* `packed` is set (calm_packed_fits)                                    */
    calm_packed packed;    /* R for packed products; of column j at least rows 0 .. j are set        */
} calm_root_float;

/* Computes R with the columns in `order`: the inverse of calm_inverse_factor's factor, times the square root of unit.
 * R always overwrites the factor in problem->inverse; `left` stays. */
calm_status calm_inverse_root_float(calm_ctx *ctx, const calm_problem *problem, const size_t *order, double damp,
                                    calm_root_float *out, double *used);

/* Returns in *out [n] the columns by falling power [n], columns of equal power from left to right; power NULL: all from
 * left to right.  In ctx->scratch, calm_inverse_order_bytes. */
calm_status calm_inverse_order(calm_ctx *ctx, size_t n, const double *power, size_t **out);
size_t calm_inverse_order_bytes(size_t n);

/* Return the peak bytes of ctx->scratch of calm_inverse_factor and of calm_inverse_root_float. */
size_t calm_inverse_factor_scratch_bytes(size_t in);
size_t calm_inverse_root_float_scratch_bytes(calm_operands operands, size_t in);
