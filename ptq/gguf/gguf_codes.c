/* Reads codes and scales from a GGUF file's blocks. */
#include "ptq/gguf/gguf_codes.h"

#include <math.h>

#include "ptq/base/threads.h"
#include "ptq/gguf/gguf_names.h"
#include "ptq/io/ggml_blocks.h"
#include "ptq/weights/int_linear.h"

typedef struct rows_task {
    const calm_ggml_blocks *blocks;
    const calm_tensor *tensor;
    uint8_t *codes;
    float *scales;
} rows_task;

static void read_rows(size_t first, size_t n, void *user)
{
    const rows_task *task = user;
    /* Rows are whole blocks, one after the other. */
    const size_t in = task->tensor->shape[1], at = first * in;
    const size_t bytes = at / task->blocks->elements * calm_ggml_find(task->blocks->type)->bytes;
    calm_ggml_read_codes(task->blocks, task->tensor->data + bytes, n * in, task->codes + at,
                         task->scales + at / task->blocks->group);
}

/* Finds the table of the tensor's block type; NULL: its values are not codes times scales, or its data differs in place
 * or order. */
static const calm_ggml_blocks *find_blocks(const calm_tensor *tensor)
{
    const calm_gguf_entry *entry = tensor->entry;
    const calm_ggml_blocks *blocks = calm_ggml_blocks_find(entry->stored->type);
    const bool as_is = entry->order.form == CALM_GGUF_AS_IS && !entry->rest && !entry->spot.plus_one &&
                       !entry->spot.minus_exp && !entry->factor;
    if (!blocks || !as_is || tensor->n_dims != 2 || tensor->shape[1] % blocks->elements != 0)
        return NULL;
    return calm_ggml_is_scaled(blocks) ? blocks : NULL;
}

/* Are all values finite?  calm_widen() refuses a float matrix with other values by its name. */
static bool all_finite(const float *x, size_t n)
{
    bool finite = true;
    for (size_t i = 0; i < n; i++)
        finite &= isfinite(x[i]) != 0;
    return finite;
}

calm_status calm_gguf_codes_take(calm_ctx *ctx, const calm_safetensors *set, const calm_tensor *tensor, float *memory,
                                 calm_weight *weight)
{
    rows_task task = {.tensor = tensor};
    /* Where this stays NULL, the caller converts the matrix to float32. */
    weight->ints = NULL;
    if (!ctx->decode || !tensor->source || !tensor->entry || !(task.blocks = find_blocks(tensor)))
        return CALM_OK;
    const size_t out = tensor->shape[0], in = tensor->shape[1], n_scales = out * in / task.blocks->group;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, task.codes, out * in));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, task.scales, n_scales));
    calm_parallel_each_rows(ctx, out, read_rows, &task);
    /* With 4 bits the zero is 8 or 4; codes above 15 have a larger zero. */
    const calm_int_source source = {.out = out, .in = in, .bits = task.blocks->zero > 8 ? 8 : 4,
                                    .group = task.blocks->group, .codes = task.codes, .scales = task.scales,
                                    .zero = task.blocks->zero};
    if (all_finite(task.scales, n_scales))
        calm_int_linear_take(ctx, &source, memory, weight);
    /* As in calm_widen(): the mapped pages are not read again. */
    if (weight->ints)
        calm_safetensors_release(set, tensor);
    return CALM_OK;
}
