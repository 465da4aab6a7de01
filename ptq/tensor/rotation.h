/* Rotations: orthogonal matrices that spread every channel over all channels.
 *
 *   x' = x Q,  Q = diag(s) (H kron C) / norm
 *   s   signs drawn from a seed, or none
 *   H   Sylvester's Hadamard matrix of 2^a rows
 *   C   core for the remaining factor of the width: 1, a Hadamard matrix by Paley's first or second construction, or,
 *       if no multiple of the factor has one, a random orthogonal matrix
 *
 * All of it is computed in double precision in one order: a width and a seed give the same bits everywhere. */
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

/* Makes Q for a width, in ctx->out.  C is drawn from `seed` alone and the signs from (seed, stream), so that
 * rotations with the same seed and width differ only in their signs. */
calm_status calm_rotation_init(calm_ctx *ctx, size_t n, uint64_t seed, uint64_t stream, calm_rotation *out);

/* Returns H alone, for n a power of two: the transform that other tools call "hadamard". */
calm_rotation calm_rotation_hadamard(size_t n);

/* Multiplies x [outer, n, inner] in place along the middle axis: rows with inner = 1, columns with outer = 1.  Uses
 * order * inner doubles of ctx->scratch. */
calm_status calm_rotation_apply(calm_ctx *ctx, const calm_rotation *rotation, size_t outer, size_t inner, double *x);

/* Multiplies float32 rows x [rows, columns] in place, each divided into consecutive blocks of n; computes in double
 * and rounds once.  Uses another `columns` doubles of ctx->scratch. */
calm_status calm_rotation_apply_rows(calm_ctx *ctx, const calm_rotation *rotation, size_t rows, size_t columns,
                                     float *x);
