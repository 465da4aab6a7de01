/* Matrix-vector products: the copy of the vector, dispatch, and pieces for threads. */
#include "ptq/tensor/gemv.h"

#include <string.h>

#include "ptq/base/scope.h"
#include "ptq/base/threads.h"
#include "ptq/tensor/gemv_kernel.h"
#include "ptq/tensor/half.h"

/* Approximate bytes of the matrix that a piece reads: enough for the hardware's prefetching. */
#define PIECE_BYTES ((size_t)128 << 10)

static size_t round_up(size_t n, size_t step)
{
    return (n + step - 1) / step * step;
}

size_t calm_gemv_bytes(const calm_gemv_matrix *matrix)
{
    const calm_int_weight *codes = matrix->codes;
    if (!codes)
        return matrix->out * matrix->in * (matrix->bf16 ? 2 : 4);
    const size_t panels = (matrix->out + CALM_INT_PANEL - 1) / CALM_INT_PANEL;
    return panels * (codes->panel + codes->n_groups * CALM_INT_PANEL * (codes->zeros ? 8 : 4));
}

/* Copies x to the order in which the kernels read it. */
static calm_status prepare(calm_ctx *ctx, const calm_gemv_matrix *matrix, const float *x, const float **out)
{
    const size_t half = CALM_GEMV_COLUMNS / 2, n = round_up(matrix->in, CALM_GEMV_COLUMNS);
    float *copy;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, copy, n));
    for (size_t i = 0; i < matrix->in; i++) {
        const size_t block = i / CALM_GEMV_COLUMNS * CALM_GEMV_COLUMNS, at = i - block;
        copy[matrix->bf16 ? block + at % 2 * half + at / 2 : i] = x[i];
    }
    *out = copy;
    return CALM_OK;
}

typedef struct product {
    calm_gemv_piece whole;
    calm_gemv_kernel *kernel;
    size_t rows;    /* of a piece */
} product;

static void multiply_piece(size_t index, void *user)
{
    const product *p = user;
    calm_gemv_piece piece = p->whole;
    piece.first = index * p->rows;
    piece.end = calm_size_min(piece.first + p->rows, p->whole.end);
    p->kernel(&piece);
}

calm_status calm_gemv(calm_ctx *ctx, const calm_gemv_matrix *matrix, const float *bias, const float *x, float *y)
{
    static calm_gemv_kernel *const kernels[CALM_N_INT_SETS] = {calm_gemv_plain, calm_gemv_avx2, calm_gemv_avx2,
                                                               calm_gemv_avx512, calm_gemv_avx512};
    product p = {.whole = {.matrix = matrix, .bias = bias, .y = y, .end = matrix->out}};
    calm_int_set set;
    CALM_SCOPED_SCRATCH(ctx);
    if (matrix->out == 0)
        return CALM_OK;
    CALM_TRY(calm_int_choose(ctx, &set));
    CALM_TRY(prepare(ctx, matrix, x, &p.whole.x));
    p.kernel = kernels[set];
    p.rows = round_up(PIECE_BYTES / calm_size_max(calm_gemv_bytes(matrix) / matrix->out, 1), CALM_INT_PANEL);
    p.rows = calm_size_max(p.rows, CALM_INT_PANEL);
    calm_parallel_each(ctx, (matrix->out + p.rows - 1) / p.rows, multiply_piece, &p);
    return CALM_OK;
}

/* ---- dequantization ---- */

/* Returns code i of a row in its panel. */
static int code_at(const calm_int_weight *weight, const uint8_t *row, size_t i)
{
    if (weight->bits == 8)
        return row[i / 4 * 4 * CALM_INT_PANEL + i % 4];
    return row[i / 8 * 4 * CALM_INT_PANEL + i % 4] >> (i % 8 / 4 * 4) & 15;
}

static void widen_codes(const calm_int_weight *weight, size_t r, float *w)
{
    const size_t panel = r / CALM_INT_PANEL, lane = r % CALM_INT_PANEL;
    const uint8_t *row = weight->codes + panel * weight->panel + 4 * lane;
    for (size_t g = 0, i = 0; g < weight->n_groups; g++) {
        const size_t cell = (panel * weight->n_groups + g) * CALM_INT_PANEL + lane;
        const size_t end = calm_size_min(i + weight->group, weight->in);
        const int zero = weight->zeros ? weight->zeros[cell] : weight->zero;
        for (; i < end; i++)
            w[i] = (float)(code_at(weight, row, i) - zero) * weight->scales[cell];
    }
}

void calm_gemv_widen(const calm_gemv_matrix *matrix, size_t first, size_t n, float *w)
{
    const size_t in = matrix->in, at = first * in;
    for (size_t r = 0; matrix->codes && r < n; r++)
        widen_codes(matrix->codes, first + r, w + r * in);
    if (!matrix->codes && !matrix->bf16)
        memcpy(w, (const uint8_t *)matrix->floats + 4 * at, n * in * sizeof *w);
    for (size_t i = 0; !matrix->codes && matrix->bf16 && i < n * in; i++) {
        uint16_t bits;
        memcpy(&bits, (const uint8_t *)matrix->floats + 2 * (at + i), sizeof bits);
        w[i] = calm_bf16_to_f32(bits);
    }
}
