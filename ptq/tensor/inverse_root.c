/* The upper triangular factor of an inverse.
 *
 *   a = R R^T with R upper, from the last tile to the first;  a^-1 = R^-T R^-1, so U = R^-1 is upper and a^-1 = U^T U
 *
 * Step k of the first:   R_kk from a_kk,  R_ik = a_ik R_kk^-T for i < k,  a_ij -= R_ik R_jk^T for i <= j < k Step j
 * of the second:  U_jj = R_jj^-1,  U_ij = -(sum over l = i .. j - 1 of U_il R_lj) U_jj for i < j
 *
 * The tiles of a step are independent: each is a task, or two tasks of half a tile if its products are long. */
#include "ptq/tensor/inverse_root.h"

#include <string.h>

#include "ptq/base/scope.h"
#include "ptq/base/threads.h"
#include "ptq/tensor/triangle_tiles.h"
#include "ptq/tensor/linalg.h"

#define TILE CALM_TRIANGLE_TILE
/* Rows of half a tile: a multiple of the rows of BLAS's kernels, so that the halves have the bytes of the whole
 * tile. */
#define HALF (TILE / 2)

typedef struct matrix {
    double *a;
    size_t n, lda;
    size_t step;      /* k of the first factorization, j of the second */
    double *column;   /* [step TILE, TILE] R_lj, l < j    */
} matrix;

static double *tile_at(const matrix *m, size_t i, size_t j)
{
    return m->a + i * TILE * m->lda + j * TILE;
}

/* Returns the rows of tile i. */
static size_t side(const matrix *m, size_t i)
{
    return calm_triangle_side(m->n, i);
}

/* ---- a = R R^T ---- */

/* Computes R_ik = a_ik R_kk^-T. */
static void divide(size_t i, void *user)
{
    const matrix *m = user;
    calm_dsolve_upper_right(side(m, i), side(m, m->step), tile_at(m, m->step, m->step), m->lda, tile_at(m, i, m->step),
                            m->lda);
}

/* Computes a_ij -= R_ik R_jk^T for the pair (i, j), i <= j < k, of index j (j + 1) / 2 + i. */
static void subtract(size_t index, void *user)
{
    const matrix *m = user;
    const size_t k = m->step;
    size_t i, j;
    calm_triangle_pair(index, &i, &j);
    if (i == j)
        calm_dsyrk_n(side(m, i), side(m, k), -1, tile_at(m, i, k), m->lda, 1, tile_at(m, i, i), m->lda);
    else
        calm_dgemm_nt(side(m, i), side(m, j), side(m, k), -1, tile_at(m, i, k), m->lda, tile_at(m, j, k), m->lda, 1,
                      tile_at(m, i, j), m->lda);
}

/* ---- U = R^-1 ---- */

/* Computes U_ii = R_ii^-1 in place; no other task reads R_ii. */
static calm_status invert_diagonal(calm_ctx *ctx, size_t i, void *user)
{
    const matrix *m = user;
    return calm_dinvert_upper(ctx, side(m, i), i * TILE, tile_at(m, i, i), m->lda);
}

/* Copies R_ij, which other tasks read, and replaces it by -U_ii R_ij, the first term of U_ij's sum.  Only the upper
 * triangle of tile (i, i) is U, so this is a triangular product. */
static void begin_tile(size_t i, void *user)
{
    const matrix *m = user;
    const size_t cols = side(m, m->step);
    double *out = tile_at(m, i, m->step);
    for (size_t row = 0; row < TILE; row++)
        memcpy(m->column + (i * TILE + row) * TILE, out + row * m->lda, cols * sizeof *m->column);
    calm_dmultiply_upper(TILE, cols, -1, tile_at(m, i, i), m->lda, out, m->lda);
}

/* Adds the other terms, the inverted tiles in row i to the left of column j, and multiplies by U_jj, for half of
 * the rows of U_ij. */
static void end_half(size_t index, void *user)
{
    const matrix *m = user;
    const size_t i = index / 2, j = m->step, row = index % 2 * HALF, cols = side(m, j), terms = (j - i) * TILE;
    double *out = tile_at(m, i, j) + row * m->lda;
    if (terms > TILE)
        calm_dgemm_nn(HALF, cols, terms - TILE, -1, tile_at(m, i, i + 1) + row * m->lda, m->lda,
                      m->column + (i + 1) * TILE * TILE, TILE, 1, out, m->lda);
    calm_dmultiply_upper_right(HALF, cols, tile_at(m, j, j), m->lda, out, m->lda);
}

size_t calm_dinverse_root_scratch_bytes(size_t n)
{
    return CALM_BYTES(double, n * TILE) + CALM_BYTES(double, TILE * TILE);
}

calm_status calm_dinverse_root(calm_ctx *ctx, size_t n, double *a, size_t lda)
{
    const size_t tiles = (n + TILE - 1) / TILE;
    matrix m = {.a = a, .n = n, .lda = lda};
    double *work;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, m.column, n * TILE));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, work, TILE * TILE));
    for (m.step = tiles; m.step-- > 0;) {
        CALM_TRY(calm_dcholesky_reverse(ctx, side(&m, m.step), m.step * TILE, tile_at(&m, m.step, m.step), lda, work));
        calm_parallel_each(ctx, m.step, divide, &m);
        calm_parallel_each(ctx, m.step * (m.step + 1) / 2, subtract, &m);
    }
    CALM_TRY(calm_parallel_for(ctx, tiles, invert_diagonal, &m));
    for (m.step = 1; m.step < tiles; m.step++) {
        calm_parallel_each(ctx, m.step, begin_tile, &m);
        calm_parallel_each(ctx, 2 * m.step, end_half, &m);
    }
    return CALM_OK;
}
