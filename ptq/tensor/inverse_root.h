/* The upper factor of an inverse, in tiles and in parallel: what GPTQ reads. */
#pragma once

#include "ptq/base/context.h"

/* In place, for a symmetric positive definite a [n, n] whose upper triangle is given: U upper with a^-1 = U^T U; the
 * strict lower triangle is left alone.  Half the operations of factor, inverse, and factor of that: 2/3 n^3.  The tiles
 * are fixed, so the bytes do not depend on the number of threads.
 * CALM_ENUMERIC, naming the pivot, when `a` is not positive definite; `a` is spoilt then. */
calm_status calm_dinverse_root(calm_ctx *ctx, size_t n, double *a, size_t lda);

/* The same in float, with other operations: tiles on the diagonal are squares, their lower triangles 0 after it. */
calm_status calm_sinverse_root(calm_ctx *ctx, size_t n, float *a, size_t lda);

/* What they hold of ctx->scratch. */
size_t calm_dinverse_root_scratch_bytes(size_t n);
size_t calm_sinverse_root_scratch_bytes(size_t n);
