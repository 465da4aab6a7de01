/* The upper factor of an inverse in float.
 *
 * As inverse_root.c, but with products alone: a triangle in float (strsm) is a segmentation fault for some sizes with
 * the Prescott kernels of OpenBLAS 0.3.21.  A tile on the diagonal is factored and inverted in double, and is its whole
 * square, zeros below the diagonal.
 *
 * Step k of the first:   U_kk = R_kk^-1 from a_kk,  R_ik = a_ik U_kk^T for i < k,  a_ij -= R_ik R_jk^T for i <= j < k
 * Step j of the second:  U_ij = -(sum over l = i .. j - 1 of U_il R_lj) U_jj for i < j */
#include <string.h>

#include "ptq/base/scope.h"
#include "ptq/base/threads.h"
#include "ptq/tensor/inverse_root.h"
#include "ptq/tensor/inverse_root_tiles.h"
#include "ptq/tensor/linalg.h"

#define TILE CALM_INVERSE_TILE

typedef struct matrix {
    float *a;
    size_t n, lda;
    size_t step;       /* k of the first, j of the second            */
    float *column;     /* [step TILE, TILE] tiles (i, step), i < step */
    float *product;    /* the same, work of each tile                */
} matrix;

static float *tile_at(const matrix *m, size_t i, size_t j)
{
    return m->a + i * TILE * m->lda + j * TILE;
}

/* Rows of tile i. */
static size_t side(const matrix *m, size_t i)
{
    return calm_inverse_side(m->n, i);
}

/* Tile (k, k) becomes U_kk; work [2, TILE, TILE]. */
static calm_status factor_diagonal(calm_ctx *ctx, const matrix *m, size_t k, double *work)
{
    const size_t n = side(m, k);
    float *a = tile_at(m, k, k);
    for (size_t i = 0; i < n; i++)
        for (size_t j = i; j < n; j++)
            work[i * TILE + j] = (double)a[i * m->lda + j];
    CALM_TRY(calm_dcholesky_reverse(ctx, n, k * TILE, work, TILE, work + TILE * TILE));
    CALM_TRY(calm_dinvert_upper(ctx, n, k * TILE, work, TILE));
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            a[i * m->lda + j] = j < i ? 0 : (float)work[i * TILE + j];
    return CALM_OK;
}

/* Tile (i, step) into the column. */
static const float *copy_tile(const matrix *m, size_t i)
{
    const size_t cols = side(m, m->step);
    float *copy = m->column + i * TILE * TILE;
    for (size_t row = 0; row < TILE; row++)
        memcpy(copy + row * TILE, tile_at(m, i, m->step) + row * m->lda, cols * sizeof *copy);
    return copy;
}

/* R_ik = a_ik U_kk^T */
static void divide(size_t i, void *user)
{
    const matrix *m = user;
    const size_t k = m->step, n = side(m, k);
    calm_sgemm_nt(TILE, n, n, 1, copy_tile(m, i), TILE, tile_at(m, k, k), m->lda, 0, tile_at(m, i, k), m->lda);
}

/* a_ij -= R_ik R_jk^T of the pair (i, j), i <= j < k, number j (j + 1) / 2 + i. */
static void subtract(size_t index, void *user)
{
    const matrix *m = user;
    const size_t k = m->step;
    size_t i, j;
    calm_inverse_pair(index, &i, &j);
    calm_sgemm_nt(TILE, TILE, side(m, k), -1, tile_at(m, i, k), m->lda, tile_at(m, j, k), m->lda, 1, tile_at(m, i, j),
                  m->lda);
}

/* A copy of R_ij, which others read. */
static void keep_tile(size_t i, void *user)
{
    copy_tile(user, i);
}

/* U_ij */
static void end_tile(size_t i, void *user)
{
    const matrix *m = user;
    const size_t j = m->step, cols = side(m, j), at = i * TILE * TILE;
    calm_sgemm_nn(TILE, cols, (j - i) * TILE, 1, tile_at(m, i, i), m->lda, m->column + at, TILE, 0, m->product + at,
                  TILE);
    calm_sgemm_nn(TILE, cols, cols, -1, m->product + at, TILE, tile_at(m, j, j), m->lda, 0, tile_at(m, i, j), m->lda);
}

size_t calm_sinverse_root_scratch_bytes(size_t n)
{
    return 2 * CALM_BYTES(float, n * TILE) + CALM_BYTES(double, 2 * TILE * TILE);
}

calm_status calm_sinverse_root(calm_ctx *ctx, size_t n, float *a, size_t lda)
{
    const size_t tiles = (n + TILE - 1) / TILE;
    matrix m = {.a = a, .n = n, .lda = lda};
    double *work;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, m.column, n * TILE));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, m.product, n * TILE));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, work, 2 * TILE * TILE));
    for (m.step = tiles; m.step-- > 0;) {
        CALM_TRY(factor_diagonal(ctx, &m, m.step, work));
        calm_parallel_each(ctx, m.step, divide, &m);
        calm_parallel_each(ctx, m.step * (m.step + 1) / 2, subtract, &m);
    }
    for (m.step = 1; m.step < tiles; m.step++) {
        calm_parallel_each(ctx, m.step, keep_tile, &m);
        calm_parallel_each(ctx, m.step, end_tile, &m);
    }
    return CALM_OK;
}
