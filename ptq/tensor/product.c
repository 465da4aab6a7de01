/* Products in tiles. */
#include "ptq/tensor/product.h"

#include "ptq/base/threads.h"
#include "ptq/tensor/linalg.h"

/* A tile has at most so many rows and columns: a product of tiles runs at nine tenths of the rate of a whole one, and
 * one of 512 x 1024 has enough of them for eight threads. */
#define TILE ((size_t)256)

typedef struct product {
    calm_product_form form;
    size_t m, n, k;
    const float *a, *b;
    size_t lda, ldb, ldc;
    float beta, *c;
    size_t rows, columns, across; /* of a tile; tiles in a row of tiles */
} product;

/* Side of the tiles that cut `n` into as few as there must be, of one size: multiples of what BLAS's kernels take at
 * once. */
static size_t tile_side(size_t n)
{
    const size_t tiles = (n + TILE - 1) / TILE;
    return tiles <= 1 ? n : ((n + tiles - 1) / tiles + 15) / 16 * 16;
}

static calm_status multiply_tile(calm_ctx *ctx, size_t index, void *user)
{
    const product *p = user;
    const size_t i = index / p->across * p->rows, j = index % p->across * p->columns;
    const size_t m = calm_size_min(p->rows, p->m - i), n = calm_size_min(p->columns, p->n - j);
    float *c = p->c + i * p->ldc + j;
    (void)ctx;
    if (p->form == CALM_PRODUCT_NT)
        calm_sgemm_nt(m, n, p->k, 1.0f, p->a + i * p->lda, p->lda, p->b + j * p->ldb, p->ldb, p->beta, c, p->ldc);
    else if (p->form == CALM_PRODUCT_NN)
        calm_sgemm_nn(m, n, p->k, 1.0f, p->a + i * p->lda, p->lda, p->b + j, p->ldb, p->beta, c, p->ldc);
    else
        calm_sgemm_tn(m, n, p->k, 1.0f, p->a + i, p->lda, p->b + j, p->ldb, p->beta, c, p->ldc);
    return CALM_OK;
}

calm_status calm_product(calm_ctx *ctx, calm_product_form form, size_t m, size_t n, size_t k, const float *a,
                         size_t lda, const float *b, size_t ldb, float beta, float *c, size_t ldc)
{
    product p = {form, m, n, k, a, b, lda, ldb, ldc, beta, c, tile_side(m), tile_side(n), 0};
    if (m == 0 || n == 0)
        return CALM_OK;
    p.across = (n + p.columns - 1) / p.columns;
    return calm_parallel_for(ctx, (m + p.rows - 1) / p.rows * p.across, multiply_tile, &p);
}
