/* Gram matrices whose operands are packed once for all tiles (AMX).
 *
 * gram.c packs both operands of each tile again, which takes a sixth of the time of a wide matrix.  Here all threads
 * pack the columns of a chunk of rows before they multiply tiles.  The bytes are those of gram.c: each number adds the
 * same products in the same order. */
#include "ptq/calib/gram_packed.h"

#include "ptq/base/scope.h"
#include "ptq/base/simd.h"
#include "ptq/base/threads.h"
#include "ptq/tensor/bf16_product.h"
#include "ptq/tensor/packed.h"

/* Narrower matrices have few tiles, and are added together with others. */
#define LEAST_WIDTH ((size_t)3072)
/* Rows and columns of a tile; columns that a task packs. */
#define TILE_ROWS ((size_t)256)
#define TILE_COLS ((size_t)512)
#define PACK_COLS ((size_t)256)

/* A chunk of rows of a job. */
typedef struct chunk {
    const calm_gram_job *job;
    size_t row, rows;
    size_t across;              /* tiles in a row of tiles */
    calm_packed left, right;    /* X^T and X, or X^T and Y */
} chunk;

size_t calm_gram_least_chunk(const calm_gram_job *job)
{
    size_t least = CALM_GRAM_CHUNK;
    for (size_t p = 0; p < job->n_parts; p++) {
        const size_t last = (job->row_begin[p + 1] - job->row_begin[p]) % CALM_GRAM_CHUNK;
        least = last ? calm_size_min(least, last) : least;
    }
    return least;
}

CALM_VECTORIZE
void calm_gram_add_row(size_t n, const float *restrict in, double *restrict out)
{
    for (size_t j = 0; j < n; j++)
        out[j] += (double)in[j];
}

static size_t pieces(size_t width, size_t side)
{
    return (width + side - 1) / side;
}

static bool packs_width(calm_operands operands, size_t width)
{
    return width >= LEAST_WIDTH && calm_packed_fits(operands, width);
}

bool calm_gram_packs(calm_operands operands, const calm_gram_job *job)
{
    /* calm_multiply uses float32 for fewer terms. */
    return packs_width(operands, job->width) && calm_gram_least_chunk(job) > CALM_BF16_FEW_TERMS;
}

/* Task: packs some columns on both sides. */
static void pack_columns(size_t index, void *user)
{
    chunk *c = user;
    const size_t width = c->job->width, first = index * PACK_COLS, n = calm_size_min(PACK_COLS, width - first);
    const float *x = c->job->x + c->row * width + first, *y = c->job->y ? c->job->y + c->row * width + first : x;
    calm_packed_put_columns(&c->left, first, n, 0, c->rows, x, width);
    calm_packed_put_columns(&c->right, first, n, 0, c->rows, y, width);
}

/* Task: adds the products of a tile to gram; of X^T X only numbers on and above the diagonal. */
static calm_status add_tile(calm_ctx *ctx, size_t index, void *user)
{
    const chunk *c = user;
    const calm_gram_job *job = c->job;
    const size_t row = index / c->across * TILE_ROWS, col = index % c->across * TILE_COLS;
    const size_t m = calm_size_min(TILE_ROWS, job->width - row), n = calm_size_min(TILE_COLS, job->width - col);
    float *product;
    if (!job->y && row >= col + n)    /* below the diagonal */
        return CALM_OK;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, product, TILE_ROWS * TILE_COLS));
    CALM_TRY(calm_packed_multiply(ctx, m, n, c->rows, (calm_packed_part){&c->left, row, 0},
                                  (calm_packed_part){&c->right, col, 0}, 0, product, n));
    for (size_t i = 0; i < m; i++) {
        const size_t first = !job->y && row + i > col ? calm_size_min(row + i - col, n) : 0;
        calm_gram_add_row(n - first, product + i * n + first, job->gram + (row + i) * job->width + col + first);
    }
    return CALM_OK;
}

static calm_status add_chunk(calm_ctx *ctx, chunk *c)
{
    c->left.any_rest = c->right.any_rest = false;
    calm_parallel_each(ctx, pieces(c->job->width, PACK_COLS), pack_columns, c);
    return calm_parallel_for(ctx, pieces(c->job->width, TILE_ROWS) * c->across, add_tile, c);
}

calm_status calm_gram_add_packed(calm_ctx *ctx, const calm_gram_job *job)
{
    chunk c = {.job = job, .across = pieces(job->width, TILE_COLS)};
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_packed_new(ctx, false, job->width, CALM_GRAM_CHUNK, &c.left));
    CALM_TRY(calm_packed_new(ctx, true, job->width, CALM_GRAM_CHUNK, &c.right));
    for (size_t p = 0; p < job->n_parts; p++)
        for (c.row = job->row_begin[p]; c.row < job->row_begin[p + 1]; c.row += c.rows) {
            c.rows = calm_size_min(job->row_begin[p + 1] - c.row, CALM_GRAM_CHUNK);
            CALM_TRY(add_chunk(ctx, &c));
        }
    return CALM_OK;
}

size_t calm_gram_packed_scratch_bytes(calm_operands operands, size_t width, size_t n_threads)
{
    return packs_width(operands, width) ? 2 * calm_packed_bytes(operands, width, CALM_GRAM_CHUNK) +
                                              n_threads * CALM_BYTES(float, TILE_ROWS * TILE_COLS)
                                        : 0;
}
