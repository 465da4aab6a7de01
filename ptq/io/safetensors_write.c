/* safetensors, writing: header first, then the data in the same order; no data is held in memory. */
#include "ptq/io/safetensors.h"

#include <assert.h>

#include "ptq/io/json.h"

static calm_json *header_entry(const calm_tensor *tensor, size_t begin, size_t end)
{
    calm_json *shape = calm_json_new_array(), *offsets = calm_json_new_array();
    for (int i = 0; i < tensor->n_dims; i++)
        calm_json_add(shape, calm_json_of_int((int64_t)tensor->shape[i]));
    calm_json_add(offsets, calm_json_of_int((int64_t)begin));
    calm_json_add(offsets, calm_json_of_int((int64_t)end));
    return CALM_OBJECT(CALM_KV("dtype", calm_dtype_name(tensor->dtype)), CALM_KV("shape", shape),
                       CALM_KV("data_offsets", offsets));
}

static calm_status build_header(calm_ctx *ctx, const calm_tensor *tensors, size_t n, calm_text *out)
{
    CALM_SCOPED_JSON(root);
    size_t offset = 0;
    root = CALM_OBJECT(CALM_KV("__metadata__", CALM_OBJECT(CALM_KV("format", "pt"))));
    for (size_t i = 0; i < n; i++) {
        size_t n_elements, bytes, end = 0;
        if (!calm_tensor_size(&tensors[i], &n_elements, &bytes) || !calm_size_add(&end, offset, bytes))
            return calm_fail(ctx, CALM_EARG, "tensor %s: its size overflows", tensors[i].name);
        calm_json_set(root, tensors[i].name, header_entry(&tensors[i], offset, end));
        offset = end;
    }
    CALM_TRY(calm_json_write(ctx, root, 0, out));
    while (!out->failed && out->length % 8)
        calm_text_append(out, " ", 1);
    return calm_text_check(ctx, out);
}

calm_status calm_safetensors_header_bytes(calm_ctx *ctx, const calm_tensor *tensor, size_t most, size_t *out)
{
    CALM_SCOPED_JSON(root);
    CALM_SCOPED_TEXT(text);
    root = tensor ? CALM_OBJECT(CALM_KV(tensor->name, header_entry(tensor, most, most)))
                  : CALM_OBJECT(CALM_KV("__metadata__", CALM_OBJECT(CALM_KV("format", "pt"))));
    CALM_TRY(calm_json_write(ctx, root, 0, &text));
    /* An entry adds a comma but not the two braces; the file adds the header's length and padding. */
    *out = tensor ? text.length + 1 - 2 : text.length + 8 + 7;
    return CALM_OK;
}

calm_status calm_safetensors_begin(calm_ctx *ctx, calm_safetensors_writer *writer, const char *path,
                                   const calm_tensor *tensors, size_t n)
{
    CALM_SCOPED_TEXT(header);
    uint8_t length[8];
    *writer = (calm_safetensors_writer){.tensors = tensors, .n = n};
    CALM_TRY(calm_writer_open(ctx, &writer->file, path));
    CALM_TRY(build_header(ctx, tensors, n, &header));
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)((uint64_t)header.length >> (8 * i));
    CALM_TRY(calm_writer_put(ctx, &writer->file, length, sizeof length));
    return calm_writer_put(ctx, &writer->file, header.data, header.length);
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
