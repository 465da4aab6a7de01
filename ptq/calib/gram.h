/* Gram matrices: X^T X, or X^T Y, in float32 products and double sums across row chunks of fixed size. */
#pragma once

#include "ptq/base/context.h"

/* Rows of one float32 product; the sum over chunks is in double.  A sum of squares is then off by up to CHUNK / 2 times
 * 2^-24 of itself, 2^-16: a smaller variance of an input cannot be read from it (cka/linear.c). */
#define CALM_GRAM_CHUNK ((size_t)512)

/* One addition: gram [I, I] (upper triangle, zero before the first call) += X^T X over X [N, I]; with Y [N, I] all of
 * it += X^T Y. */
typedef struct calm_gram_job {
    double *gram;
    const float *x;
    size_t rows, width;
    const size_t *row_begin;    /* [n_parts + 1]: chunks never cross these rows (windows) */
    size_t n_parts;
    const float *y;             /* NULL: X */
} calm_gram_job;

/* Run several additions in parallel over tiles of the matrices: each tile adds its chunks in order.  The strict lower
 * triangles are left alone. */
calm_status calm_gram_add(calm_ctx *ctx, const calm_gram_job *jobs, size_t n);

/* Copy the upper triangle of gram [I, I] to the lower one, on ctx's threads. */
void calm_gram_mirror(calm_ctx *ctx, size_t width, double *gram);

/* Give gram [I, I] of `rows` rows other mean squares [I], with the correlations that it has:
 * gram_ij sqrt(squares_i rows / gram_ii) sqrt(squares_j rows / gram_jj); an input that was always 0 has none. */
calm_status calm_gram_rescale(calm_ctx *ctx, size_t width, const double *squares, size_t rows, double *gram);

/* A matrix of width I. */
size_t calm_gram_bytes(size_t width);

/* What calm_gram_add holds of ctx->scratch at most, its workers together, for matrices of these widths [n],
 * and with `crosses` an X^T Y of each besides. */
size_t calm_gram_add_scratch_bytes(const size_t *widths, size_t n, bool crosses, size_t n_threads);
