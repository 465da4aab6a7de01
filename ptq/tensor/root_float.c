/* The upper root of a matrix in float; ctx->operands sets the operands of its products.
 *
 * The algorithm is the first half of inverse_root.c, but uses products only: a triangular solve in float (strsm)
 * crashes for some sizes with the Prescott kernels of OpenBLAS 0.3.21.  A tile on the diagonal is factored and
 * inverted in double.
 *
 * Step k:   R_kk from a_kk,  R_ik = a_ik R_kk^-T for i < k,  a_ij -= R_ik R_jk^T for i <= j < k */
#include <string.h>

#include "ptq/base/scope.h"
#include "ptq/base/threads.h"
#include "ptq/tensor/inverse_root.h"
#include "ptq/tensor/triangle_tiles.h"
#include "ptq/tensor/linalg.h"
#include "ptq/tensor/packed.h"

#define TILE CALM_TRIANGLE_TILE

typedef struct matrix {
    float *a;
    size_t n, lda;
    size_t step;       /* k                                                */
    float *column;     /* [step TILE, TILE] tiles (i, step), i < step, before the step; then -R_ik */
    float *inverse;    /* [TILE, TILE] inverse of R_kk, as a whole square  */
    /* R_ik and -R_ik, packed, which many products of a step read; NULL: not packed on this CPU */
    calm_packed *left, *right;
} matrix;

static float *tile_at(const matrix *m, size_t i, size_t j)
{
    return m->a + i * TILE * m->lda + j * TILE;
}

/* Returns the rows of tile i. */
static size_t side(const matrix *m, size_t i)
{
    return calm_triangle_side(m->n, i);
}

/* Computes R_kk in place of the upper triangle of tile (k, k), and its inverse; work [2, TILE, TILE]. */
static calm_status factor_diagonal(calm_ctx *ctx, const matrix *m, double *work)
{
    const size_t k = m->step, n = side(m, k);
    float *a = tile_at(m, k, k);
    for (size_t i = 0; i < n; i++)
        for (size_t j = i; j < n; j++)
            work[i * TILE + j] = (double)a[i * m->lda + j];
    CALM_TRY(calm_dcholesky_reverse(ctx, n, k * TILE, work, TILE, work + TILE * TILE));
    for (size_t i = 0; i < n; i++)
        for (size_t j = i; j < n; j++)
            a[i * m->lda + j] = (float)work[i * TILE + j];
    CALM_TRY(calm_dinvert_upper(ctx, n, k * TILE, work, TILE));
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            m->inverse[i * TILE + j] = j < i ? 0 : (float)work[i * TILE + j];
    return CALM_OK;
}

/* Computes R_ik = a_ik R_kk^-T. */
static calm_status divide(calm_ctx *ctx, size_t i, void *user)
{
    const matrix *m = user;
    const size_t n = side(m, m->step);
    float *copy = m->column + i * TILE * TILE, *out = tile_at(m, i, m->step);
    for (size_t row = 0; row < TILE; row++)
        memcpy(copy + row * TILE, out + row * m->lda, n * sizeof *copy);
    CALM_TRY(calm_multiply(ctx, CALM_PRODUCT_NT, TILE, n, n, copy, TILE, m->inverse, TILE, 0, out, m->lda));
    for (size_t row = 0; row < TILE; row++)
        for (size_t j = 0; j < n; j++)
            copy[row * TILE + j] = -out[row * m->lda + j];
    if (m->left) {
        calm_packed_store(m->left, i * TILE, TILE, 0, n, out, m->lda);
        calm_packed_store(m->right, i * TILE, TILE, 0, n, copy, TILE);
    }
    return CALM_OK;
}

/* Computes a_ij -= R_ik R_jk^T for the pair (i, j), i <= j < k, of index j (j + 1) / 2 + i. */
static calm_status subtract(calm_ctx *ctx, size_t index, void *user)
{
    const matrix *m = user;
    const size_t k = m->step;
    size_t i, j;
    calm_triangle_pair(index, &i, &j);
    if (m->left)
        return calm_packed_multiply(ctx, TILE, TILE, side(m, k), (calm_packed_part){m->left, i * TILE, 0},
                                    (calm_packed_part){m->right, j * TILE, 0}, 1, tile_at(m, i, j), m->lda);
    return calm_multiply(ctx, CALM_PRODUCT_NT, TILE, TILE, side(m, k), tile_at(m, i, k), m->lda,
                         m->column + j * TILE * TILE, TILE, 1, tile_at(m, i, j), m->lda);
}

size_t calm_sroot_scratch_bytes(calm_operands operands, size_t n)
{
    return CALM_BYTES(float, n * TILE) + CALM_BYTES(float, TILE * TILE) + CALM_BYTES(double, 2 * TILE * TILE) +
           (calm_packed_fits(operands, n) ? 2 * calm_packed_bytes(operands, n, TILE) : 0);
}

calm_status calm_sroot(calm_ctx *ctx, size_t n, float *a, size_t lda)
{
    matrix m = {.a = a, .n = n, .lda = lda};
    calm_packed left, right;
    double *work;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, m.column, n * TILE));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, m.inverse, TILE * TILE));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, work, 2 * TILE * TILE));
    if (calm_packed_fits(ctx->operands, n)) {
        CALM_TRY(calm_packed_new(ctx, false, n, TILE, &left));
        CALM_TRY(calm_packed_new(ctx, true, n, TILE, &right));
        m.left = &left;
        m.right = &right;
    }
    for (m.step = (n + TILE - 1) / TILE; m.step-- > 0;) {
        CALM_TRY(factor_diagonal(ctx, &m, work));
        CALM_TRY(calm_parallel_for(ctx, m.step, divide, &m));
        CALM_TRY(calm_parallel_for(ctx, m.step * (m.step + 1) / 2, subtract, &m));
    }
    return CALM_OK;
}
