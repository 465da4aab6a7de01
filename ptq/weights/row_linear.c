/* Linears as they are stored. */
#include "ptq/weights/row_linear.h"

#include <stdint.h>
#include <string.h>

#include "ptq/base/threads.h"
#include "ptq/tensor/product.h"

/* Up to this many rows run faster one after the other than a tile is converted and packed. */
#define FEW_ROWS ((size_t)4)
/* Rows of a weight that are converted for one product: some 100 kB to a few MB. */
#define TILE_ROWS ((size_t)192)

bool calm_row_linear_take(const calm_ctx *ctx, const calm_tensor *tensor, calm_weight *weight)
{
    const bool bf16 = tensor->dtype == CALM_BF16;
    /* A tensor with a source (FP8, MXFP4) is dequantized where it is read. */
    if (!ctx->decode || tensor->source || (!bf16 && (tensor->dtype != CALM_F32 || (uintptr_t)tensor->data % 4)))
        return false;
    weight->bf16 = bf16 ? tensor->data : NULL;
    /* With bfloat16 this only marks that the linear exists, and is not read. */
    weight->w = (const float *)(const void *)tensor->data;
    return true;
}

calm_gemv_matrix calm_row_linear_matrix(const calm_weight *weight)
{
    return (calm_gemv_matrix){.out = weight->out,
                              .in = weight->in,
                              .floats = weight->ints ? NULL : weight->bf16 ? weight->bf16 : weight->w,
                              .bf16 = weight->bf16 != NULL,
                              .codes = weight->ints};
}

/* A product divided into tiles of the weight, each of which computes some columns of y for all tokens. */
typedef struct tile_task {
    const calm_weight *weight;
    calm_gemv_matrix matrix;
    const float *x;
    size_t n_tokens;
    float *y;
} tile_task;

/* Computes the columns of y for one tile of the weight. */
static calm_status multiply_tile(calm_ctx *ctx, size_t index, void *user)
{
    const tile_task *task = user;
    const calm_weight *weight = task->weight;
    const size_t first = index * TILE_ROWS, n = calm_size_min(weight->out - first, TILE_ROWS), in = weight->in;
    const float *w = weight->w ? weight->w + first * in : NULL;
    float *wide;
    if (weight->ints || weight->bf16) {
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, wide, n * in));
        calm_gemv_widen(&task->matrix, first, n, wide);
        w = wide;
    }
    /* The product adds to the bias. */
    for (size_t t = 0; weight->bias && t < task->n_tokens; t++)
        memcpy(task->y + t * weight->out + first, weight->bias + first, n * sizeof *task->y);
    return calm_multiply(ctx, CALM_PRODUCT_NT, task->n_tokens, n, in, task->x, in, w, in, weight->bias ? 1.0f : 0.0f,
                         task->y + first, weight->out);
}

calm_status calm_row_linear_product(calm_ctx *ctx, const calm_weight *weight, const float *x, size_t n_tokens,
                                    float *y)
{
    tile_task task = {weight, calm_row_linear_matrix(weight), x, n_tokens, y};
    if (n_tokens > FEW_ROWS)
        return calm_parallel_for(ctx, (weight->out + TILE_ROWS - 1) / TILE_ROWS, multiply_tile, &task);
    /* Each of the few rows reads the whole matrix once, as it is stored. */
    for (size_t t = 0; t < n_tokens; t++)
        CALM_TRY(calm_gemv(ctx, &task.matrix, weight->bias, x + t * weight->in, y + t * weight->out));
    return CALM_OK;
}
