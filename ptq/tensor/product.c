/* Products in tiles. */
#include "ptq/tensor/product.h"

#include "ptq/base/threads.h"
#include "ptq/tensor/bf16_kernel.h"
#include "ptq/tensor/bf16_product.h"

/* ---- on this thread ---- */

calm_status calm_multiply(calm_ctx *ctx, calm_product_form form, size_t m, size_t n, size_t k, const float *a,
                          size_t lda, const float *b, size_t ldb, float beta, float *c, size_t ldc)
{
    if (ctx->bf16)
        return calm_bf16_product(ctx, form, m, n, k, a, lda, b, ldb, beta, c, ldc);
    calm_sgemm(form, m, n, k, a, lda, b, ldb, beta, c, ldc);
    return CALM_OK;
}

calm_status calm_multiply_upper(calm_ctx *ctx, size_t n, size_t k, const float *x, size_t ldx, float *c, size_t ldc)
{
    if (ctx->bf16)
        return calm_bf16_product_upper(ctx, n, k, x, ldx, c, ldc);
    calm_ssyrk_t(n, k, 1, x, ldx, 0, c, ldc);
    return CALM_OK;
}

size_t calm_multiply_scratch_bytes(bool bf16, size_t rows)
{
    return bf16 ? calm_bf16_scratch_bytes(rows) : 0;
}

/* ---- in tiles ---- */

/* A tile has at most so many rows and columns: a product of tiles runs at nine tenths of the rate of a whole one, and
 * one of 512 x 1024 has enough of them for eight threads. */
#define TILE ((size_t)256)
/* A multiple of what BLAS's kernels take at once. */
#define TILE_STEP ((size_t)16)

typedef struct product {
    calm_product_form form;
    size_t m, n, k;
    const float *a, *b;
    size_t lda, ldb, ldc;
    float beta, *c;
    size_t rows, columns, across; /* of a tile; tiles in a row of tiles */
} product;

static calm_status multiply_tile(calm_ctx *ctx, size_t index, void *user)
{
    const product *p = user;
    const size_t i = index / p->across * p->rows, j = index % p->across * p->columns;
    const size_t m = calm_size_min(p->rows, p->m - i), n = calm_size_min(p->columns, p->n - j);
    const float *a = p->a + (p->form == CALM_PRODUCT_TN ? i : i * p->lda);
    const float *b = p->b + (p->form == CALM_PRODUCT_NT ? j * p->ldb : j);
    (void)ctx;
    calm_sgemm(p->form, m, n, p->k, a, p->lda, b, p->ldb, p->beta, p->c + i * p->ldc + j, p->ldc);
    return CALM_OK;
}

calm_status calm_product(calm_ctx *ctx, calm_product_form form, size_t m, size_t n, size_t k, const float *a,
                         size_t lda, const float *b, size_t ldb, float beta, float *c, size_t ldc)
{
    product p = {form, m, n, k, a, b, lda, ldb, ldc, beta, c, calm_product_side(m, TILE, TILE_STEP),
                 calm_product_side(n, TILE, TILE_STEP), 0};
    if (m == 0 || n == 0)
        return CALM_OK;
    p.across = (n + p.columns - 1) / p.columns;
    return calm_parallel_for(ctx, (m + p.rows - 1) / p.rows * p.across, multiply_tile, &p);
}

/* ---- cut between rows ---- */

/* Rows of a piece are a multiple of this: what the kernels of all families take at once divides it (4, 8, 12, 16). */
#define ROW_STEP ((size_t)48)
/* Rows that a piece has about.  Each piece copies B into BLAS's order again: at 512 rows a twelfth of its time, at 1024
 * half of that, so pieces are that large where there are at most as many threads as FEW. */
#define ROWS_OF_PIECE  ((size_t)512)
#define FEW            ((size_t)4)
#define DROWS_OF_PIECE ((size_t)384)
#define UPPER_ROWS     ((size_t)192)
/* Triangles that are cut: columns a multiple of this, of so many terms (the chunks of cka/). */
#define UPPER_STEP  ((size_t)16)
#define UPPER_TERMS ((size_t)256)
/* No piece is below this: BLAS has other kernels for small products (up to 1e6 on x86-64). */
#define SMALL_PRODUCT ((size_t)1 << 21)

typedef struct rows_product {
    calm_product_form form;
    size_t m, n, k, rows, pieces;
    const void *a, *b;
    size_t lda, ldb, ldc;
    double beta;
    void *c;
} rows_product;

/* Terms that bf16_product.c gives BLAS about at least of a longer sum, and columns of a wider product: halves of what
 * it gives at most. */
#define BF16_TERMS (CALM_BF16_TERMS / 2)
#define BF16_COLS  (CALM_BF16_COLS / 2)

/* Cut m rows into pieces of about `wanted`; the last one takes what is left, never less than ROW_STEP. */
static void cut_rows(rows_product *p, bool bf16, size_t wanted)
{
    const size_t n = bf16 ? calm_size_min(p->n, BF16_COLS) : p->n, k = bf16 ? calm_size_min(p->k, BF16_TERMS) : p->k;
    const size_t pieces = (p->m + wanted / 2) / wanted;
    p->rows = p->m;
    p->pieces = 1;
    if (pieces < 2 || ROW_STEP * n * k < SMALL_PRODUCT)
        return;
    p->rows = ((p->m + pieces - 1) / pieces + ROW_STEP - 1) / ROW_STEP * ROW_STEP;
    p->pieces = calm_size_max((p->m + p->rows - ROW_STEP) / p->rows, 1);
}

/* Rows of piece `index`, from its first. */
static size_t piece_rows(const rows_product *p, size_t index)
{
    return index + 1 < p->pieces ? p->rows : p->m - index * p->rows;
}

static calm_status multiply_rows(calm_ctx *ctx, size_t index, void *user)
{
    const rows_product *p = user;
    const size_t first = index * p->rows, m = piece_rows(p, index);
    const float *a = (const float *)p->a + (p->form == CALM_PRODUCT_TN ? first : first * p->lda), *b = p->b;
    float *c = (float *)p->c + first * p->ldc;
    return calm_multiply(ctx, p->form, m, p->n, p->k, a, p->lda, b, p->ldb, (float)p->beta, c, p->ldc);
}

calm_status calm_product_rows(calm_ctx *ctx, calm_product_form form, size_t m, size_t n, size_t k, const float *a,
                              size_t lda, const float *b, size_t ldb, float beta, float *c, size_t ldc)
{
    rows_product p = {form, m, n, k, 0, 0, a, b, lda, ldb, ldc, (double)beta, c};
    cut_rows(&p, ctx->bf16, calm_team_size(ctx) <= FEW ? 2 * ROWS_OF_PIECE : ROWS_OF_PIECE);
    return m && n ? calm_parallel_for(ctx, p.pieces, multiply_rows, &p) : CALM_OK;
}

static calm_status dmultiply_rows(calm_ctx *ctx, size_t index, void *user)
{
    const rows_product *p = user;
    const size_t first = index * p->rows, m = piece_rows(p, index);
    const double *a = (const double *)p->a + (p->form == CALM_PRODUCT_TN ? first : first * p->lda), *b = p->b;
    double *c = (double *)p->c + first * p->ldc;
    (void)ctx;
    calm_dgemm(p->form, m, p->n, p->k, a, p->lda, b, p->ldb, p->beta, c, p->ldc);
    return CALM_OK;
}

calm_status calm_dproduct_rows(calm_ctx *ctx, calm_product_form form, size_t m, size_t n, size_t k, const double *a,
                               size_t lda, const double *b, size_t ldb, double beta, double *c, size_t ldc)
{
    rows_product p = {form, m, n, k, 0, 0, a, b, lda, ldb, ldc, beta, c};
    cut_rows(&p, false, DROWS_OF_PIECE);
    return m && n ? calm_parallel_for(ctx, p.pieces, dmultiply_rows, &p) : CALM_OK;
}

/* Of rows from `first`: the triangle on the diagonal, and what is right of it. */
static calm_status multiply_upper(calm_ctx *ctx, size_t index, void *user)
{
    const rows_product *p = user;
    const size_t first = index * p->rows, m = piece_rows(p, index), right = first + m;
    const double *x = p->a;
    double *c = (double *)p->c + first * p->ldc;
    (void)ctx;
    calm_dsyrk_t(m, p->k, 1, x + first, p->lda, 1, c + first, p->ldc);
    if (right < p->n)
        calm_dgemm_tn(m, p->n - right, p->k, 1, x + first, p->lda, x + right, p->lda, 1, c + right, p->ldc);
    return CALM_OK;
}

calm_status calm_dproduct_upper(calm_ctx *ctx, size_t n, size_t k, const double *x, size_t ldx, double *c, size_t ldc)
{
    rows_product p = {CALM_PRODUCT_TN, n, n, k, n, 1, x, x, ldx, ldx, ldc, 1, c};
    /* Thin, since the first piece has the most columns.  At the edges of other shapes, and where it cuts long sums in
     * two, BLAS adds a triangle in another order than a product: those are not cut. */
    if (n % UPPER_STEP == 0 && k == UPPER_TERMS)
        cut_rows(&p, false, UPPER_ROWS);
    return n ? calm_parallel_for(ctx, p.pieces, multiply_upper, &p) : CALM_OK;
}
