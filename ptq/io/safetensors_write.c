/* safetensors, writing: header first, then the data in the same order, nothing held in memory. */
#include "ptq/io/safetensors.h"

#include <assert.h>

#include "ptq/io/json.h"

static calm_json *header_entry(const calm_tensor *tensor, size_t begin, size_t end)
{
    calm_json *entry = calm_json_new_object(), *shape = calm_json_new_array(), *offsets = calm_json_new_array();
    calm_json_set_string(entry, "dtype", calm_dtype_name(tensor->dtype));
    for (int i = 0; i < tensor->n_dims; i++)
        calm_json_add_int(shape, (int64_t)tensor->shape[i]);
    calm_json_set(entry, "shape", shape);
    calm_json_add_int(offsets, (int64_t)begin);
    calm_json_add_int(offsets, (int64_t)end);
    calm_json_set(entry, "data_offsets", offsets);
    return entry;
}

static calm_status build_header(calm_ctx *ctx, const calm_tensor *tensors, size_t n, calm_text *out)
{
    calm_json *root = calm_json_new_object(), *metadata = calm_json_new_object();
    size_t offset = 0;
    calm_status status = CALM_OK;
    calm_json_set_string(metadata, "format", "pt");
    calm_json_set(root, "__metadata__", metadata);
    for (size_t i = 0; i < n && status == CALM_OK; i++) {
        size_t n_elements, bytes, end = 0;
        if (!calm_tensor_size(&tensors[i], &n_elements, &bytes) || !calm_size_add(&end, offset, bytes))
            status = calm_fail(ctx, CALM_EARG, "tensor %s: its size overflows", tensors[i].name);
        else
            calm_json_set(root, tensors[i].name, header_entry(&tensors[i], offset, end));
        offset = end;
    }
    if (status == CALM_OK)
        status = calm_json_write(ctx, root, 0, out);
    calm_json_free(root);
    while (status == CALM_OK && out->length % 8)
        calm_text_append(out, " ", 1);
    return status == CALM_OK ? calm_text_check(ctx, out) : status;
}

calm_status calm_safetensors_begin(calm_ctx *ctx, calm_safetensors_writer *writer, const char *path,
                                   const calm_tensor *tensors, size_t n)
{
    *writer = (calm_safetensors_writer){.tensors = tensors, .n = n};
    CALM_TRY(calm_writer_open(ctx, &writer->file, path));
    calm_text header;
    calm_text_init(&header);
    calm_status status = build_header(ctx, tensors, n, &header);
    if (status == CALM_OK) {
        uint8_t length[8];
        for (int i = 0; i < 8; i++)
            length[i] = (uint8_t)((uint64_t)header.length >> (8 * i));
        status = calm_writer_put(ctx, &writer->file, length, sizeof length);
    }
    if (status == CALM_OK)
        status = calm_writer_put(ctx, &writer->file, header.data, header.length);
    calm_text_clear(&header);
    return status;
}

calm_status calm_safetensors_put(calm_ctx *ctx, calm_safetensors_writer *writer, const void *data, size_t bytes)
{
    size_t n_elements, expected = 0;
    assert(writer->next < writer->n);
    bool sized = calm_tensor_size(&writer->tensors[writer->next], &n_elements, &expected);
    assert(sized && bytes <= expected - writer->filled);
    (void)sized;
    writer->filled += bytes;
    if (writer->filled == expected) {
        writer->next++;
        writer->filled = 0;
    }
    return calm_writer_put(ctx, &writer->file, data, bytes);
}

calm_status calm_safetensors_end(calm_ctx *ctx, calm_safetensors_writer *writer)
{
    assert(ctx->status != CALM_OK || writer->next == writer->n);
    return calm_writer_close(ctx, &writer->file);
}
