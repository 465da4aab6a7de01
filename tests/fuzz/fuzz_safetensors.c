/* safetensors files: an opened file is consistent: every tensor is in the file and can be read. */
#include <stdlib.h>
#include <string.h>

#include "ptq/io/safetensors.h"
#include "tests/fuzz/fuzz.h"

/* A volatile sink, so that every byte is actually read. */
static volatile unsigned sink;

static void check_tensor(calm_ctx *ctx, const calm_safetensors *set, const calm_tensor *tensor)
{
    size_t n, bytes;
    float *values;
    unsigned sum = 0;
    if (!calm_tensor_size(tensor, &n, &bytes) || n != tensor->n_elements || bytes != tensor->bytes)
        abort();
    for (size_t i = 0; i < bytes; i++)
        sum += tensor->data[i];
    sink = sum;
    if (calm_safetensors_find(set, tensor->name) != tensor)
        abort();
    if (calm_alloc(ctx, ctx->scratch, &values, n ? n : 1, sizeof *values, "values") == CALM_OK)
        calm_tensor_to_f32(ctx, tensor, values);
    calm_ctx_clear_failure(ctx);
}

int calm_fuzz_one(const uint8_t *data, size_t size)
{
    calm_ctx *ctx = fuzz_context();
    calm_safetensors *set;
    if (calm_safetensors_open(ctx, fuzz_file("model.safetensors", data, size), &set) != CALM_OK) {
        if (set || !ctx->message[0])
            abort();
        return 0;
    }
    size_t bytes = 0;
    for (size_t i = 0; i < calm_safetensors_count(set); i++) {
        const calm_tensor *tensor = calm_safetensors_at(set, i);
        check_tensor(ctx, set, tensor);
        bytes += tensor->bytes;
        calm_safetensors_release(set, tensor);
    }
    if (bytes > size)    /* tensors do not overlap */
        abort();
    calm_safetensors_close(set);
    return 0;
}
