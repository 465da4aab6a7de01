/* Reads strided matrices, in tiles. */
#include "ptq/weights/turned.h"

#include <string.h>

#include "ptq/base/scope.h"
#include "ptq/tensor/dtype.h"

/* Rows and columns that are transposed at a time: their floats are on the stack. */
#define TILE_ROWS ((size_t)128)
#define TILE_COLUMNS ((size_t)16)

/* Reads n elements from `at` on; plain floats may be NaN here, and the caller checks the result. */
static calm_status read_run(calm_ctx *ctx, const calm_strided_view *v, size_t at, size_t n, float *out)
{
    const calm_tensor *whole = v->whole;
    return whole->source ? whole->source->widen(ctx, whole->source->self, whole, v->first + at, n, out)
                         : calm_to_f32(ctx, whole->dtype,
                                       whole->data + (v->first + at) * calm_dtype_bytes(whole->dtype), n, out);
}

/* Transposes rows r0 .. r0 + rows - 1 and columns c0 .. of a view into out, whose rows are `width` apart. */
static calm_status turn(calm_ctx *ctx, const calm_tensor *tensor, size_t r0, size_t rows, size_t c0, size_t columns,
                        size_t width, float *out)
{
    const calm_strided_view *v = tensor->entry;
    const size_t span = (rows - 1) * v->row_step + 1;
    float line[2 * TILE_ROWS];
    for (size_t c = 0; c < columns; c++) {
        CALM_TRY(read_run(ctx, v, r0 * v->row_step + (c0 + c) * v->column_step, span, line));
        for (size_t r = 0; r < rows; r++)
            out[r * width + c] = line[r * v->row_step];
    }
    return CALM_OK;
}

/* A vector has rows of one element. */
static size_t row_width(const calm_tensor *tensor)
{
    return tensor->n_dims == 1 ? 1 : tensor->shape[1];
}

/* Reads whole rows r0 .. r0 + rows - 1. */
static calm_status widen_rows(calm_ctx *ctx, const calm_tensor *tensor, size_t r0, size_t rows, float *out)
{
    const calm_strided_view *v = tensor->entry;
    const size_t width = row_width(tensor);
    for (size_t r = 0; v->column_step == 1 && r < rows; r++)
        CALM_TRY(read_run(ctx, v, (r0 + r) * v->row_step, width, out + r * width));
    /* Elements of a column of the matrix are neighbours in the file. */
    for (size_t r = 0; v->column_step > 1 && r < rows; r += TILE_ROWS)
        for (size_t c = 0; c < width; c += TILE_COLUMNS)
            CALM_TRY(turn(ctx, tensor, r0 + r, calm_size_min(TILE_ROWS, rows - r), c,
                          calm_size_min(TILE_COLUMNS, width - c), width, out + r * width + c));
    return CALM_OK;
}

/* The `widen` of calm_tensor_source.  For parts of rows, which are rare, it reads the whole rows. */
static calm_status widen(calm_ctx *ctx, const void *self, const calm_tensor *tensor, size_t first, size_t n, float *out)
{
    const size_t width = row_width(tensor), begin = first / width, end = (first + n + width - 1) / width;
    float *rows = out;
    (void)self;
    CALM_SCOPED_SCRATCH(ctx);
    if (first % width || n % width)
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, rows, (end - begin) * width));
    CALM_TRY(widen_rows(ctx, tensor, begin, end - begin, rows));
    if (rows != out)
        memcpy(out, rows + (first - begin * width), n * sizeof *out);
    const size_t bad = calm_find_nonfinite(out, n);
    return bad == n ? CALM_OK
                    : calm_fail(ctx, CALM_ENUMERIC, "%s: tensor %s: element %zu is %g; the checkpoint is damaged",
                                tensor->file, tensor->name, first + bad, (double)out[bad]);
}

const calm_tensor_source calm_turned_source = {.widen = widen};
