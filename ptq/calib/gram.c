/* Gram matrices, in parallel over tiles of the upper triangle. */
#include "ptq/calib/gram.h"

#include "ptq/base/threads.h"
#include "ptq/tensor/linalg.h"

#define TILE ((size_t)128)

typedef struct tile {
    const calm_gram_job *job;
    size_t row, col;    /* first of each, col >= row */
} tile;

/* chunk [m, n] of X^T X added to the tile in double. */
static void add_chunk(const calm_gram_job *job, const tile *at, size_t m, size_t n, size_t row, size_t rows,
                      float *product)
{
    const float *x = job->x + row * job->width;
    calm_sgemm_tn(m, n, rows, 1.0f, x + at->row, job->width, x + at->col, job->width, 0.0f, product, n);
    for (size_t i = 0; i < m; i++) {
        double *out = job->gram + (at->row + i) * job->width + at->col;
        for (size_t j = 0; j < n; j++)
            out[j] += (double)product[i * n + j];
    }
}

static calm_status run_tile(calm_ctx *ctx, size_t index, void *user)
{
    const tile *at = (const tile *)user + index;
    const calm_gram_job *job = at->job;
    const size_t m = job->width - at->row < TILE ? job->width - at->row : TILE;
    const size_t n = job->width - at->col < TILE ? job->width - at->col : TILE;
    float *product;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, product, TILE * TILE));
    for (size_t p = 0; p < job->n_parts; p++)
        for (size_t row = job->row_begin[p]; row < job->row_begin[p + 1]; row += CALM_GRAM_CHUNK) {
            const size_t left = job->row_begin[p + 1] - row;
            add_chunk(job, at, m, n, row, left < CALM_GRAM_CHUNK ? left : CALM_GRAM_CHUNK, product);
        }
    return CALM_OK;
}

calm_status calm_gram_add(calm_ctx *ctx, const calm_gram_job *jobs, size_t n)
{
    size_t n_tiles = 0;
    tile *tiles;
    for (size_t j = 0; j < n; j++) {
        const size_t side = (jobs[j].width + TILE - 1) / TILE;
        n_tiles += side * (side + 1) / 2;
    }
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, tiles, n_tiles));
    n_tiles = 0;
    for (size_t j = 0; j < n; j++)
        for (size_t row = 0; row < jobs[j].width; row += TILE)
            for (size_t col = row; col < jobs[j].width; col += TILE)
                tiles[n_tiles++] = (tile){&jobs[j], row, col};
    return calm_parallel_for(ctx, n_tiles, run_tile, tiles);
}
