/* Triangular roots of a matrix and of its inverse, for GPTQ; computed in tiles and in parallel. */
#pragma once

#include "ptq/base/context.h"

/* Replaces a symmetric positive definite a [n, n], whose upper triangle is given, by the upper U with a^-1 = U^T U;
 * leaves the strict lower triangle alone.  It takes 2/3 n^3 operations, half those of Cholesky factor, inverse and
 * second Cholesky factor.  The tiles are fixed, so the bytes do not depend on the number of threads.  CALM_ENUMERIC,
 * naming the pivot, when `a` is not positive definite; `a` is then undefined. */
calm_status calm_dinverse_root(calm_ctx *ctx, size_t n, double *a, size_t lda);

/* Computes in float32, by calm_multiply, the upper R with a = R R^T (R = U^-1): half the operations of
 * calm_dinverse_root.  Below the diagonal, the tiles on the diagonal are overwritten. */
calm_status calm_sroot(calm_ctx *ctx, size_t n, float *a, size_t lda);

/* Return the peak bytes of ctx->scratch. */
size_t calm_dinverse_root_scratch_bytes(size_t n);
size_t calm_sroot_scratch_bytes(calm_operands operands, size_t n);
