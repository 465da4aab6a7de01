/* The upper root of a matrix and the upper factor of its inverse, in tiles and in parallel: what GPTQ reads. */
#pragma once

#include "ptq/base/context.h"

/* In place, for a symmetric positive definite a [n, n] whose upper triangle is given: U upper with a^-1 = U^T U; the
 * strict lower triangle is left alone.  Half the operations of factor, inverse, and factor of that: 2/3 n^3.  The tiles
 * are fixed, so the bytes do not depend on the number of threads.
 * CALM_ENUMERIC, naming the pivot, when `a` is not positive definite; `a` is spoilt then. */
calm_status calm_dinverse_root(calm_ctx *ctx, size_t n, double *a, size_t lda);

/* In float, by calm_multiply, with half the operations: R = U^-1, which is upper, too: a = R R^T.  Below the diagonal,
 * tiles on it are spoilt. */
calm_status calm_sroot(calm_ctx *ctx, size_t n, float *a, size_t lda);

/* What they hold of ctx->scratch. */
size_t calm_dinverse_root_scratch_bytes(size_t n);
size_t calm_sroot_scratch_bytes(calm_operands operands, size_t n);
