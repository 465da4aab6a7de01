/* Rotations: orthogonal matrices that spread every channel over all of them.
 *
 *   x' = x Q,  Q = diag(s) (H kron C) / norm
 *   s   signs drawn from a seed, or none
 *   H   Sylvester's Hadamard matrix of 2^a rows
 *   C   of what is left of the width: nothing (1), a Hadamard matrix by Paley's first or second construction, or where
 *       no multiple has one, a random orthogonal matrix
 *
 * All of it is computed in double in one order: a width and a seed have the same bits everywhere. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "ptq/base/context.h"

typedef struct calm_rotation {
    size_t n;              /* width: `order` times a power of two                     */
    size_t order;          /* rows of C                                               */
    bool hadamard;         /* C is a Hadamard matrix, or 1                            */
    const double *core;    /* [order, order]; NULL: 1                                 */
    const double *signs;   /* [n] 1 or -1; NULL: all 1                                */
    double scale;          /* 1 / norm                                                */
} calm_rotation;

/* Q of a width, in ctx->out.  C is drawn from `seed` alone and the signs from (seed, stream), so that rotations of one
 * seed and width differ in their signs. */
calm_status calm_rotation_init(calm_ctx *ctx, size_t n, uint64_t seed, uint64_t stream, calm_rotation *out);

/* H alone, of a power of two, which the field's readers have under the name "hadamard". */
calm_rotation calm_rotation_hadamard(size_t n);

/* Multiply in place along the middle axis of x [outer, n, inner]: rows with inner 1, columns with outer 1.  Of
 * ctx->scratch it takes order * inner doubles. */
calm_status calm_rotation_apply(calm_ctx *ctx, const calm_rotation *rotation, size_t outer, size_t inner, double *x);

/* The same of float32 rows x [rows, columns], each of several blocks of n side by side; computed in double and rounded
 * once.  Of ctx->scratch it takes `columns` doubles besides. */
calm_status calm_rotation_apply_rows(calm_ctx *ctx, const calm_rotation *rotation, size_t rows, size_t columns,
                                     float *x);
