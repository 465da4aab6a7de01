/* Gram matrices, in parallel over tiles of the upper triangle.
 *
 * A tile goes over all rows, one BLAS product per chunk.  Each product first packs its two operands for BLAS, so tiles
 * are large: with 128 x 128 packing takes a third of the time, with 512 x 1024 a tenth.  Tiles on the diagonal are
 * symmetric rank-k updates, which skip the half that is not read. */
#include "ptq/calib/gram.h"

#include <math.h>
#include <stdlib.h>

#include "ptq/base/scope.h"
#include "ptq/base/threads.h"
#include "ptq/calib/gram_packed.h"
#include "ptq/tensor/product.h"

/* The size of a tile, whose float32 product each worker holds. */
#define TILE_ROWS ((size_t)512)
#define TILE_COLS ((size_t)1024)    /* a multiple of TILE_ROWS */
/* With fewer tiles than ENOUGH per thread, off-diagonal tiles are cut into quarters, each with about as much work as a
 * diagonal tile, or into halves if kernels need all columns at once: pieces as in calm_product_rows. */
#define ENOUGH    ((size_t)4)
#define HALF_ROWS (5 * CALM_PRODUCT_ROW_STEP)

typedef struct tile {
    const calm_gram_job *job;
    size_t row, col, m, n;    /* first row, first column, rows, columns; col == row: only the upper triangle */
    double work;
} tile;

/* Adds the product over `rows` rows from `row` on to the tile, in double. */
static calm_status add_chunk(calm_ctx *ctx, const tile *at, size_t row, size_t rows, float *product)
{
    const size_t width = at->job->width, n = at->n;
    const float *x = at->job->x + row * width;
    const float *y = at->job->y ? at->job->y + row * width : x;
    const bool diagonal = !at->job->y && at->row == at->col;
    if (diagonal)
        CALM_TRY(calm_multiply_upper(ctx, n, rows, x + at->col, width, product, n));
    else
        CALM_TRY(calm_multiply(ctx, CALM_PRODUCT_TN, at->m, n, rows, x + at->row, width, y + at->col, width, 0.0f,
                               product, n));
    for (size_t i = 0; i < at->m; i++) {
        const size_t first = diagonal ? i : 0;
        calm_gram_add_row(n - first, product + i * n + first, at->job->gram + (at->row + i) * width + at->col + first);
    }
    return CALM_OK;
}

/* Task: adds all rows of a job to one tile, chunk by chunk, so that the double sum has the order of the rows. */
static calm_status run_tile(calm_ctx *ctx, size_t index, void *user)
{
    const tile *at = (const tile *)user + index;
    const calm_gram_job *job = at->job;
    float *product;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, product, at->m * at->n));    /* BLAS overwrites it: beta = 0 */
    for (size_t p = 0; p < job->n_parts; p++)
        for (size_t row = job->row_begin[p]; row < job->row_begin[p + 1]; row += CALM_GRAM_CHUNK)
            CALM_TRY(add_chunk(ctx, at, row, calm_size_min(job->row_begin[p + 1] - row, CALM_GRAM_CHUNK), product));
    return CALM_OK;
}

/* ---- tiles: of the upper triangle for X^T X, of the whole matrix for X^T Y ---- */

typedef struct tile_list {
    tile *tiles;       /* NULL: tiles are only counted */
    size_t n, most;    /* number of tiles; values of the largest */
    bool cut;          /* cut tiles, because there are not ENOUGH */
} tile_list;

static void put_tile(tile_list *list, tile at)
{
    if (list->tiles)
        list->tiles[list->n] = at;
    list->n++;
    list->most = calm_size_max(list->most, at.m * at.n);
}

/* Adds one tile, or its parts; returns its number of columns. */
static size_t put_tiles(tile_list *list, const calm_gram_job *job, size_t row, size_t col)
{
    const bool diagonal = !job->y && row == col, across = calm_product_any_columns();
    const size_t most = diagonal ? TILE_ROWS : TILE_COLS - col % TILE_COLS;
    const size_t m = calm_size_min(job->width - row, TILE_ROWS), n = calm_size_min(job->width - col, most);
    const double work = (double)job->rows * (diagonal ? 0.5 : 1);
    const bool large = m == TILE_ROWS && n >= TILE_ROWS && (!across || n % (2 * CALM_PRODUCT_COLUMN_STEP) == 0);
    const size_t cols = across ? n / 2 : n;
    if (diagonal || !list->cut || !large || HALF_ROWS * cols * calm_gram_least_chunk(job) < CALM_PRODUCT_LEAST) {
        put_tile(list, (tile){job, row, col, m, n, work * (double)m * (double)n});
        return n;
    }
    for (size_t j = 0; j < n; j += cols) {
        const double each = work * (double)cols;
        put_tile(list, (tile){job, row, col + j, HALF_ROWS, cols, each * (double)HALF_ROWS});
        put_tile(list, (tile){job, row + HALF_ROWS, col + j, m - HALF_ROWS, cols, each * (double)(m - HALF_ROWS)});
    }
    return n;
}

/* Lists the tiles on and above the diagonal, from the diagonal on, so that the first of a row may be narrower; for X^T
 * Y all tiles. */
static void list_tiles(const calm_gram_job *job, tile_list *list)
{
    for (size_t row = 0; row < job->width; row += TILE_ROWS)
        for (size_t col = job->y ? 0 : row; col < job->width;)
            col += put_tiles(list, job, row, col);
}

/* Sorts by falling work; the order of equal tiles changes no result. */
static int by_work(const void *a, const void *b)
{
    const double x = ((const tile *)a)->work, y = ((const tile *)b)->work;
    return x < y ? 1 : x > y ? -1 : 0;
}

size_t calm_gram_bytes(size_t width)
{
    return CALM_BYTES(double, width * width);
}

/* Counts the tiles of matrices of these widths, each with one chunk. */
static tile_list count_tiles(const size_t *widths, size_t n, bool crosses, bool cut)
{
    static const float any = 0;    /* only tells that there is a Y */
    static const size_t one[] = {0, CALM_GRAM_CHUNK};
    tile_list list = {.cut = cut};
    for (size_t i = 0; i < n; i++)
        list_tiles(&(calm_gram_job){.width = widths[i], .row_begin = one, .n_parts = 1}, &list);
    for (size_t i = 0; crosses && i < n; i++)
        list_tiles(&(calm_gram_job){.width = widths[i], .row_begin = one, .n_parts = 1, .y = &any}, &list);
    return list;
}

static bool too_few(size_t n_tiles, size_t n_threads)
{
    return n_threads > 1 && n_tiles < ENOUGH * n_threads;
}

size_t calm_gram_add_scratch_bytes(calm_operands operands, const size_t *widths, size_t n, bool crosses,
                                   size_t n_threads)
{
    /* Either parts of tiles (if chunks are long) or whole tiles may be used: the larger memory counts. */
    const tile_list whole = count_tiles(widths, n, crosses, false);
    const size_t tiles = count_tiles(widths, n, crosses, too_few(whole.n, n_threads)).n;
    size_t most = n ? CALM_BYTES(tile, tiles) + calm_size_min(n_threads, tiles) * CALM_BYTES(float, whole.most) : 0;
    for (size_t i = 0; i < n; i++)
        most = calm_size_max(most, calm_gram_packed_scratch_bytes(operands, widths[i], n_threads));
    return most;
}

/* Lists the tiles of all jobs that are not packed. */
static tile_list list_all(calm_operands operands, const calm_gram_job *jobs, size_t n, bool cut, tile *tiles)
{
    tile_list list = {.tiles = tiles, .cut = cut};
    for (size_t j = 0; j < n; j++)
        if (!calm_gram_packs(operands, &jobs[j]))
            list_tiles(&jobs[j], &list);
    return list;
}

calm_status calm_gram_add(calm_ctx *ctx, const calm_gram_job *jobs, size_t n)
{
    const bool cut = too_few(list_all(ctx->operands, jobs, n, false, NULL).n, (size_t)ctx->n_threads);
    const size_t n_tiles = list_all(ctx->operands, jobs, n, cut, NULL).n;
    tile *tiles;
    for (size_t j = 0; j < n; j++)
        if (calm_gram_packs(ctx->operands, &jobs[j]))
            CALM_TRY(calm_gram_add_packed(ctx, &jobs[j]));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, tiles, n_tiles));
    list_all(ctx->operands, jobs, n, cut, tiles);
    qsort(tiles, n_tiles, sizeof *tiles, by_work);    /* largest first, so that the last ones to end are small */
    return calm_parallel_for(ctx, n_tiles, run_tile, tiles);
}

typedef struct mirror_task {
    size_t width;
    double *gram;
} mirror_task;

static void mirror_rows(size_t first, size_t n, void *user)
{
    const mirror_task *task = user;
    calm_dsymmetrize_rows(first, first + n, task->gram, task->width);
}

void calm_gram_mirror(calm_ctx *ctx, size_t width, double *gram)
{
    calm_parallel_each_rows(ctx, width, mirror_rows, &(mirror_task){width, gram});
}

/* ---- other mean squares ---- */

/* Rows of a Gram matrix, and the factors of its inputs. */
typedef struct rescale_task {
    size_t width;
    const double *factor;    /* [width] */
    double *gram;
} rescale_task;

static void rescale_rows(size_t first, size_t n, void *user)
{
    const rescale_task *task = user;
    for (size_t i = first; i < first + n; i++)
        for (size_t j = 0; j < task->width; j++)
            task->gram[i * task->width + j] *= task->factor[i] * task->factor[j];
}

calm_status calm_gram_rescale(calm_ctx *ctx, size_t width, const double *squares, size_t rows, double *gram)
{
    double *factor;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, factor, width));
    for (size_t i = 0; i < width; i++) {
        const double own = gram[i * width + i];    /* 0: all products of this input are 0 */
        factor[i] = own > 0 ? sqrt(squares[i] * (double)rows / own) : 0;
    }
    calm_parallel_each_rows(ctx, width, rescale_rows, &(rescale_task){width, factor, gram});
    for (size_t i = 0; i < width; i++)    /* the exact diagonal, also of inputs that were always 0 */
        gram[i * width + i] = squares[i] * (double)rows;
    return CALM_OK;
}
