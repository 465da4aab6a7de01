/* Converts tensors to float32 in pieces. */
#include "ptq/weights/widen.h"

#include "ptq/base/threads.h"
#include "ptq/tensor/dtype.h"

/* Elements that a task converts before their pages are released. */
#define PIECE ((size_t)1 << 17)

typedef struct widen_task {
    const calm_safetensors *tensors;
    const calm_tensor *tensor;
    float *out;
} widen_task;

/* Returns the elements of a piece; whole rows for a tensor with a source. */
static size_t piece_of(const calm_tensor *tensor)
{
    const size_t row = tensor->n_dims ? tensor->shape[tensor->n_dims - 1] : 1;
    return tensor->source && row ? calm_size_max(1, PIECE / row) * row : PIECE;
}

static calm_status widen_piece(calm_ctx *ctx, size_t index, void *user)
{
    const widen_task *task = user;
    const size_t whole = task->tensor->n_elements, piece = piece_of(task->tensor), at = index * piece,
                 n = calm_size_min(whole - at, piece), bytes = calm_dtype_bytes(task->tensor->dtype);
    CALM_TRY(calm_tensor_part_to_f32(ctx, task->tensor, at, n, task->out + at));
    /* Small tensors share pages with others, which are released at the end. */
    if (n < whole && !task->tensor->source)
        calm_safetensors_release_part(task->tensors, task->tensor, at * bytes, n * bytes);
    return CALM_OK;
}

/* Mapped pages are released, since the float32 copy exists; the system would evict them later, in a worse order.  In
 * pieces, since memory that arenas keep for reuse is resident too, and a whole matrix of a large model would be added
 * to it. */
calm_status calm_widen(calm_ctx *ctx, const calm_safetensors *tensors, const calm_tensor *tensor, float *out)
{
    widen_task task = {tensors, tensor, out};
    const size_t piece = piece_of(tensor);
    CALM_TRY(calm_parallel_for(ctx, (tensor->n_elements + piece - 1) / piece, widen_piece, &task));
    calm_safetensors_release(tensors, tensor);    /* for small tensors, with the pages around them */
    return CALM_OK;
}
