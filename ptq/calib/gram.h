/* Gram matrices X^T X and cross products X^T Y: float32 products of chunks of rows, summed over chunks in double. */
#pragma once

#include "ptq/base/context.h"

/* Rows per float32 product.  The relative error of a sum of squares is up to CHUNK / 2 x 2^-24 = 2^-16, so a smaller
 * variance of an input cannot be computed from it (cka/linear.c). */
#define CALM_GRAM_CHUNK ((size_t)512)

/* One addition: gram [I, I] += X^T X with X [N, I] (only the upper triangle), or gram += X^T Y with Y [N, I] (the whole
 * matrix).  gram is zero before the first addition. */
typedef struct calm_gram_job {
    double *gram;
    const float *x;
    size_t rows, width;
    const size_t *row_begin;    /* [n_parts + 1]: chunks never cross these rows (windows) */
    size_t n_parts;
    const float *y;             /* NULL: X^T X */
} calm_gram_job;

/* Computes several additions in parallel over tiles of the matrices; each tile adds its chunks in order.  The strict
 * lower triangles of X^T X are not written. */
calm_status calm_gram_add(calm_ctx *ctx, const calm_gram_job *jobs, size_t n);

/* Copies the upper triangle of gram [I, I] to the lower one, on ctx's threads. */
void calm_gram_mirror(calm_ctx *ctx, size_t width, double *gram);

/* Replaces the mean squares of gram [I, I] over `rows` rows by squares [I] and keeps the correlations:
 * gram_ij sqrt(squares_i rows / gram_ii) sqrt(squares_j rows / gram_jj); an input that was always 0 has none. */
calm_status calm_gram_rescale(calm_ctx *ctx, size_t width, const double *squares, size_t rows, double *gram);

/* Returns the bytes of a matrix of width I. */
size_t calm_gram_bytes(size_t width);

/* Returns the peak bytes of ctx->scratch in calm_gram_add with operands of this type, of all workers together, for
 * matrices of these widths [n], and with `crosses` also for an X^T Y of each. */
size_t calm_gram_add_scratch_bytes(calm_operands operands, const size_t *widths, size_t n, bool crosses,
                                   size_t n_threads);
