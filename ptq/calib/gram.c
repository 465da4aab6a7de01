/* Gram matrices, in parallel over tiles of the upper triangle.
 *
 * A tile walks over all rows, one BLAS product per chunk.  Each product copies its two operands into BLAS's own order
 * first, so tiles are large: 128 x 128 spends a third of its time on these copies, 512 x 1024 a tenth.  Tiles on the
 * diagonal are symmetric rank-k updates, which leave the half out that nobody reads. */
#include "ptq/calib/gram.h"

#include <stdlib.h>

#include "ptq/base/simd.h"
#include "ptq/base/threads.h"
#include "ptq/tensor/linalg.h"


typedef struct tile {
    const calm_gram_job *job;
    size_t row, col, m, n;    /* first of each and how many; col == row: the upper triangle of [m, m] */
    double work;
} tile;

/* out [n] += in [n] */
CALM_VECTORIZE
static void add_row(size_t n, const float *restrict in, double *restrict out)
{
    for (size_t j = 0; j < n; j++)
        out[j] += (double)in[j];
}

/* The product over `rows` rows from `row`, added to the tile in double. */
static void add_chunk(const tile *at, size_t row, size_t rows, float *product)
{
    const size_t width = at->job->width, n = at->n;
    const float *x = at->job->x + row * width;
    const bool diagonal = at->row == at->col;
    if (diagonal)
        calm_ssyrk_t(n, rows, 1.0f, x + at->col, width, 0.0f, product, n);
    else
        calm_sgemm_tn(at->m, n, rows, 1.0f, x + at->row, width, x + at->col, width, 0.0f, product, n);
    for (size_t i = 0; i < at->m; i++) {
        const size_t first = diagonal ? i : 0;
        add_row(n - first, product + i * n + first, at->job->gram + (at->row + i) * width + at->col + first);
    }
}

static calm_status run_tile(calm_ctx *ctx, size_t index, void *user)
{
    const tile *at = (const tile *)user + index;
    const calm_gram_job *job = at->job;
    float *product;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, product, at->m * at->n));
    for (size_t p = 0; p < job->n_parts; p++)
        for (size_t row = job->row_begin[p]; row < job->row_begin[p + 1]; row += CALM_GRAM_CHUNK) {
            const size_t left = job->row_begin[p + 1] - row;
            add_chunk(at, row, left < CALM_GRAM_CHUNK ? left : CALM_GRAM_CHUNK, product);
        }
    return CALM_OK;
}

/* ---- tiles of the upper triangle ---- */

/* Add one tile to `tiles` unless that is NULL; returns the number of columns it takes. */
static size_t put_tile(tile *tiles, size_t *n_tiles, const calm_gram_job *job, size_t row, size_t col)
{
    const bool diagonal = row == col;
    const size_t most = diagonal ? CALM_GRAM_TILE_ROWS : CALM_GRAM_TILE_COLS - col % CALM_GRAM_TILE_COLS;
    const size_t m = job->width - row < CALM_GRAM_TILE_ROWS ? job->width - row : CALM_GRAM_TILE_ROWS;
    const size_t n = job->width - col < most ? job->width - col : most;
    if (tiles)
        tiles[*n_tiles] = (tile){job, row, col, m, n, (double)job->rows * (double)m * (double)n * (diagonal ? 0.5 : 1)};
    ++*n_tiles;
    return n;
}

static void list_tiles(const calm_gram_job *jobs, size_t n, tile *tiles, size_t *n_tiles)
{
    *n_tiles = 0;
    for (size_t j = 0; j < n; j++)
        for (size_t row = 0; row < jobs[j].width; row += CALM_GRAM_TILE_ROWS)
            for (size_t col = row; col < jobs[j].width;)
                col += put_tile(tiles, n_tiles, &jobs[j], row, col);
}

static int by_work(const void *a, const void *b)
{
    const double x = ((const tile *)a)->work, y = ((const tile *)b)->work;
    return x < y ? 1 : x > y ? -1 : 0;
}

calm_status calm_gram_add(calm_ctx *ctx, const calm_gram_job *jobs, size_t n)
{
    size_t n_tiles;
    tile *tiles;
    list_tiles(jobs, n, NULL, &n_tiles);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, tiles, n_tiles));
    list_tiles(jobs, n, tiles, &n_tiles);
    qsort(tiles, n_tiles, sizeof *tiles, by_work);    /* the largest first: the last ones to end are small */
    return calm_parallel_for(ctx, n_tiles, run_tile, tiles);
}
