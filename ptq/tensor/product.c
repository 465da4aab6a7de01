/* Matrix products in tiles. */
#include "ptq/tensor/product.h"

#include "ptq/base/threads.h"
#include "ptq/tensor/bf16_kernel.h"
#include "ptq/tensor/bf16_product.h"
#include "ptq/tensor/blas_family.h"

/* ---- on this thread ---- */

/* Returns whether bf16_product.c computes the product.  Operands of two parts stay float32 on a CPU without fast
 * bfloat16, which is more accurate. */
static bool in_blocks(calm_operands operands)
{
    return operands == CALM_OPERANDS_BF16 || calm_bf16_is_fast(operands);
}

calm_status calm_multiply(calm_ctx *ctx, calm_product_form form, size_t m, size_t n, size_t k, const float *a,
                          size_t lda, const float *b, size_t ldb, float beta, float *c, size_t ldc)
{
    if (in_blocks(ctx->operands))
        return calm_bf16_product(ctx, form, m, n, k, a, lda, b, ldb, beta, c, ldc);
    calm_sgemm(form, m, n, k, a, lda, b, ldb, beta, c, ldc);
    return CALM_OK;
}

calm_status calm_multiply_upper(calm_ctx *ctx, size_t n, size_t k, const float *x, size_t ldx, float *c, size_t ldc)
{
    if (in_blocks(ctx->operands))
        return calm_bf16_product_upper(ctx, n, k, x, ldx, c, ldc);
    calm_ssyrk_t(n, k, 1, x, ldx, 0, c, ldc);
    return CALM_OK;
}

size_t calm_multiply_scratch_bytes(calm_operands operands, size_t rows)
{
    return in_blocks(operands) ? calm_bf16_scratch_bytes(operands, rows) : 0;
}

/* ---- in tiles ---- */

/* Maximum rows and columns of a tile: products of tiles reach nine tenths of the rate of a whole product, and a
 * product of 512 x 1024 has enough tiles for eight threads. */
#define TILE ((size_t)256)
/* A multiple of the rows and columns of BLAS's kernels. */
#define TILE_STEP ((size_t)16)

typedef struct product {
    calm_product_form form;
    size_t m, n, k;
    const float *a, *b;
    size_t lda, ldb, ldc;
    float beta, *c;
    size_t rows, columns, across; /* rows, columns of a tile; tiles per row of tiles */
} product;

static void multiply_tile(size_t index, void *user)
{
    const product *p = user;
    const size_t i = index / p->across * p->rows, j = index % p->across * p->columns;
    const size_t m = calm_size_min(p->rows, p->m - i), n = calm_size_min(p->columns, p->n - j);
    const float *a = p->a + (p->form == CALM_PRODUCT_TN ? i : i * p->lda);
    const float *b = p->b + (p->form == CALM_PRODUCT_NT ? j * p->ldb : j);
    calm_sgemm(p->form, m, n, p->k, a, p->lda, b, p->ldb, p->beta, p->c + i * p->ldc + j, p->ldc);
}

calm_status calm_product(calm_ctx *ctx, calm_product_form form, size_t m, size_t n, size_t k, const float *a,
                         size_t lda, const float *b, size_t ldb, float beta, float *c, size_t ldc)
{
    product p = {form, m, n, k, a, b, lda, ldb, ldc, beta, c, calm_product_side(m, TILE, TILE_STEP),
                 calm_product_side(n, TILE, TILE_STEP), 0};
    if (m == 0 || n == 0)
        return CALM_OK;
    /* Kernels of AMX have the same bytes for any pieces, and pack larger pieces less often. */
    if (ctx->operands != CALM_OPERANDS_F32 && calm_bf16_is_fast(CALM_OPERANDS_BF16X2))
        return calm_product_rows(ctx, form, m, n, k, a, lda, b, ldb, beta, c, ldc);
    p.across = (n + p.columns - 1) / p.columns;
    calm_parallel_each(ctx, (m + p.rows - 1) / p.rows * p.across, multiply_tile, &p);
    return CALM_OK;
}

/* ---- division by rows and columns ---- */

/* Each piece copies its rows of A and its columns of B into BLAS's layout, a tenth of its time for 512 by 512: if
 * pieces stay that large, each thread gets two, so that all threads end together. */
#define PIECE_SIDE ((size_t)512)
/* Two threads end together with one piece each. */
#define FEW ((size_t)2)
#define DROWS_OF_PIECE ((size_t)384)
#define UPPER_ROWS     ((size_t)192)
/* Triangles that are divided have columns in multiples of this, and this many terms (the chunks of cka/). */
#define UPPER_STEP  ((size_t)16)
#define UPPER_TERMS ((size_t)256)

typedef struct rows_product {
    calm_product_form form;
    size_t m, n, k, rows, pieces;       /* rows of a piece; pieces per column of pieces    */
    size_t columns, across;             /* columns of a piece; pieces per row of pieces    */
    const void *a, *b;
    size_t lda, ldb, ldc;
    double beta;
    void *c;
} rows_product;

/* Approximate minimum terms and columns that bf16_product.c passes to BLAS from longer sums and wider products:
 * half of its maximum. */
#define BF16_TERMS (CALM_BF16_TERMS / 2)
#define BF16_COLS  (CALM_BF16_COLS / 2)

/* Divides n into about this many pieces; sets *side to their size, a multiple of the step.  The last piece has the
 * remainder, at least a step.  Returns the number of pieces. */
static size_t cut(size_t n, size_t pieces, size_t step, size_t *side)
{
    *side = n;
    if (pieces < 2)
        return 1;
    *side = ((n + pieces - 1) / pieces + step - 1) / step * step;
    return calm_size_max((n + *side - step) / *side, 1);
}

/* Returns the minimum terms of a sum that one call of BLAS computes. */
static size_t least_terms(const rows_product *p, bool bf16)
{
    return bf16 ? calm_size_min(p->k, BF16_TERMS) : p->k;
}

/* Divides m rows into pieces of about `wanted` rows. */
static void cut_rows(rows_product *p, bool bf16, size_t wanted)
{
    const size_t n = bf16 ? calm_size_min(p->n, BF16_COLS) : p->n;
    const bool small = CALM_PRODUCT_ROW_STEP * n * least_terms(p, bf16) < CALM_PRODUCT_LEAST;
    p->columns = p->n;
    p->across = 1;
    p->pieces = cut(p->m, small ? 1 : (p->m + wanted / 2) / wanted, CALM_PRODUCT_ROW_STEP, &p->rows);
}

/* Returns the rows and columns of piece `index`. */
static size_t piece_rows(const rows_product *p, size_t index)
{
    return index + 1 < p->pieces ? p->rows : p->m - index * p->rows;
}

static size_t piece_columns(const rows_product *p, size_t index)
{
    return index + 1 < p->across ? p->columns : p->n - index * p->columns;
}

/* Divides a product into `pieces`, in the arrangement that copies the fewest numbers: each piece copies its rows of
 * A and its columns of B. */
static void cut_square(rows_product *p, bool bf16, size_t pieces)
{
    const size_t terms = least_terms(p, bf16);
    size_t best = pieces;
    for (size_t d = 1; d <= pieces; d++)
        if (pieces % d == 0 && d * p->n + pieces / d * p->m < best * p->n + pieces / best * p->m)
            best = d;
    p->pieces = cut(p->m, best, CALM_PRODUCT_ROW_STEP, &p->rows);
    p->across = cut(p->n, pieces / best, CALM_PRODUCT_COLUMN_STEP, &p->columns);
    /* The last pieces may be the smallest. */
    const size_t rows = calm_size_min(p->rows, piece_rows(p, p->pieces - 1)),
                 columns = calm_size_min(p->columns, piece_columns(p, p->across - 1));
    if (rows * columns * terms < CALM_PRODUCT_LEAST) {
        p->pieces = p->across = 1;
        p->rows = p->m;
        p->columns = p->n;
    }
}

bool calm_product_any_columns(void)
{
    /* The family is compared by name, and every product asks. */
    static _Atomic int known = -1;
    if (known < 0)
        known = calm_blas_any_columns(calm_linalg_kernels());
    return known;
}

/* Divides a product for this many threads. */
static void cut_for(rows_product *p, bool bf16, size_t threads)
{
    const bool large = p->m * p->n / (2 * threads) >= PIECE_SIDE * PIECE_SIDE;
    if (calm_product_any_columns())
        cut_square(p, bf16, threads > FEW && large ? 2 * threads : threads);
    else
        cut_rows(p, bf16, calm_size_max(p->m / threads, 2 * CALM_PRODUCT_ROW_STEP));
}

static calm_status multiply_piece(calm_ctx *ctx, size_t index, void *user)
{
    const rows_product *p = user;
    const size_t i = index / p->across, j = index % p->across, row = i * p->rows, column = j * p->columns;
    const float *a = (const float *)p->a + (p->form == CALM_PRODUCT_TN ? row : row * p->lda),
                *b = (const float *)p->b + (p->form == CALM_PRODUCT_NT ? column * p->ldb : column);
    return calm_multiply(ctx, p->form, piece_rows(p, i), piece_columns(p, j), p->k, a, p->lda, b, p->ldb,
                         (float)p->beta, (float *)p->c + row * p->ldc + column, p->ldc);
}

calm_status calm_product_rows(calm_ctx *ctx, calm_product_form form, size_t m, size_t n, size_t k, const float *a,
                              size_t lda, const float *b, size_t ldb, float beta, float *c, size_t ldc)
{
    rows_product p = {.form = form, .m = m, .n = n, .k = k, .a = a, .b = b, .lda = lda, .ldb = ldb, .ldc = ldc,
                      .beta = (double)beta, .c = c};
    if (m == 0 || n == 0)
        return CALM_OK;
    cut_for(&p, in_blocks(ctx->operands), (size_t)ctx->n_threads);
    return calm_parallel_for(ctx, p.pieces * p.across, multiply_piece, &p);
}

static void dmultiply_rows(size_t index, void *user)
{
    const rows_product *p = user;
    const size_t first = index * p->rows, m = piece_rows(p, index);
    const double *a = (const double *)p->a + (p->form == CALM_PRODUCT_TN ? first : first * p->lda), *b = p->b;
    double *c = (double *)p->c + first * p->ldc;
    calm_dgemm(p->form, m, p->n, p->k, a, p->lda, b, p->ldb, p->beta, c, p->ldc);
}

void calm_dproduct_rows(calm_ctx *ctx, calm_product_form form, size_t m, size_t n, size_t k, const double *a,
                        size_t lda, const double *b, size_t ldb, double beta, double *c, size_t ldc)
{
    rows_product p = {.form = form, .m = m, .n = n, .k = k, .a = a, .b = b, .lda = lda, .ldb = ldb, .ldc = ldc,
                      .beta = beta, .c = c};
    cut_rows(&p, false, DROWS_OF_PIECE);
    if (m && n)
        calm_parallel_each(ctx, p.pieces, dmultiply_rows, &p);
}

/* Computes the rows of a piece: the triangle on the diagonal, and the columns to its right. */
static void multiply_upper(size_t index, void *user)
{
    const rows_product *p = user;
    const size_t first = index * p->rows, m = piece_rows(p, index), right = first + m;
    const double *x = p->a;
    double *c = (double *)p->c + first * p->ldc;
    calm_dsyrk_t(m, p->k, 1, x + first, p->lda, 1, c + first, p->ldc);
    if (right < p->n)
        calm_dgemm_tn(m, p->n - right, p->k, 1, x + first, p->lda, x + right, p->lda, 1, c + right, p->ldc);
}

void calm_dproduct_upper(calm_ctx *ctx, size_t n, size_t k, const double *x, size_t ldx, double *c, size_t ldc)
{
    rows_product p = {.form = CALM_PRODUCT_TN, .m = n, .n = n, .k = k, .rows = n, .pieces = 1, .a = x, .b = x,
                      .lda = ldx, .ldb = ldx, .ldc = ldc, .beta = 1, .c = c};
    /* Pieces are thin because the first has the most columns.  For other shapes, at the edges and where BLAS splits
     * long sums, BLAS adds a triangle in another order than a product: those are not divided. */
    if (n % UPPER_STEP == 0 && k == UPPER_TERMS)
        cut_rows(&p, false, UPPER_ROWS);
    if (n)
        calm_parallel_each(ctx, p.pieces, multiply_upper, &p);
}
