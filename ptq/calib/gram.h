/* Gram matrices: X^T X in float32 products and double sums across row chunks of fixed size. */
#ifndef CALM_CALIB_GRAM_H
#define CALM_CALIB_GRAM_H

#include "ptq/base/context.h"

/* Rows of one float32 product; the sum over chunks is in double. */
#define CALM_GRAM_CHUNK ((size_t)512)

/* A tile's product in float32, which each worker holds. */
#define CALM_GRAM_TILE_ROWS  ((size_t)512)
#define CALM_GRAM_TILE_COLS  ((size_t)1024)    /* multiple of the rows */
#define CALM_GRAM_TILE_BYTES (CALM_GRAM_TILE_ROWS * CALM_GRAM_TILE_COLS * sizeof(float))

/* One addition: gram [I, I] (upper triangle, zero before the first call) += X^T X over X [N, I]. */
typedef struct calm_gram_job {
    double *gram;
    const float *x;
    size_t rows, width;
    const size_t *row_begin;    /* [n_parts + 1]: chunks never cross these rows (windows) */
    size_t n_parts;
} calm_gram_job;

/* Run several additions in parallel over tiles of the matrices: each tile adds its chunks in order.  The strict lower
 * triangles are left alone. */
calm_status calm_gram_add(calm_ctx *ctx, const calm_gram_job *jobs, size_t n);

#endif
