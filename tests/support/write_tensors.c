/* Writes tensors from memory to a file. */
#include "tests/support/write_tensors.h"

#include "tests/support/harness.h"

void write_tensors(const char *dir, const calm_tensor *tensors, size_t n)
{
    calm_safetensors_writer writer;
    ck_ok(calm_safetensors_begin(ctx, &writer, test_format("%s/model.safetensors", dir), tensors, n));
    for (size_t i = 0; i < n; i++)
        ck_ok(calm_safetensors_put(ctx, &writer, tensors[i].data, tensors[i].bytes));
    ck_ok(calm_safetensors_end(ctx, &writer));
}

calm_tensor float_tensor(const char *name, const float *values, size_t a, size_t b, size_t c)
{
    calm_tensor out = {.name = name, .dtype = CALM_F32, .n_dims = c ? 3 : b ? 2 : 1, .shape = {a, b, c},
                       .data = (const uint8_t *)values};
    ck_assert(calm_tensor_size(&out, &out.n_elements, &out.bytes));
    return out;
}
