/* GGUF, writing. */
#include "ptq/io/gguf_write.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/base/option.h"
#include "ptq/base/scope.h"
#include "ptq/io/gguf_impl.h"

/* ---- keys ---- */

static void append_number(calm_text *to, uint64_t value, size_t n)
{
    char bytes[8];
    for (size_t i = 0; i < n; i++)
        bytes[i] = (char)(value >> (8 * i));
    calm_text_append(to, bytes, n);
}

static void append_string(calm_text *to, const char *text, size_t n)
{
    append_number(to, n, 8);
    calm_text_append(to, text, n);
}

void calm_gguf_keys_init(calm_gguf_keys *keys)
{
    calm_text_init(&keys->bytes);
    keys->n = 0;
}

void calm_gguf_keys_clear(calm_gguf_keys *keys)
{
    calm_text_clear(&keys->bytes);
    keys->n = 0;
}

static void begin_key(calm_gguf_keys *keys, const char *name, calm_gguf_kind kind)
{
    append_string(&keys->bytes, name, strlen(name));
    append_number(&keys->bytes, (uint64_t)kind, 4);
    keys->n++;
}

void calm_gguf_add_u32(calm_gguf_keys *keys, const char *name, uint32_t value)
{
    begin_key(keys, name, CALM_GGUF_U32);
    append_number(&keys->bytes, value, 4);
}

void calm_gguf_add_u16(calm_gguf_keys *keys, const char *name, uint16_t value)
{
    begin_key(keys, name, CALM_GGUF_U16);
    append_number(&keys->bytes, value, 2);
}

void calm_gguf_add_i32(calm_gguf_keys *keys, const char *name, int32_t value)
{
    begin_key(keys, name, CALM_GGUF_I32);
    append_number(&keys->bytes, (uint32_t)value, 4);
}

void calm_gguf_add_f32(calm_gguf_keys *keys, const char *name, float value)
{
    begin_key(keys, name, CALM_GGUF_F32);
    calm_gguf_element_f32(keys, value);
}

void calm_gguf_add_bool(calm_gguf_keys *keys, const char *name, bool value)
{
    begin_key(keys, name, CALM_GGUF_BOOL);
    append_number(&keys->bytes, value, 1);
}

void calm_gguf_add_string(calm_gguf_keys *keys, const char *name, const char *text)
{
    begin_key(keys, name, CALM_GGUF_STRING);
    append_string(&keys->bytes, text, strlen(text));
}

void calm_gguf_add_array(calm_gguf_keys *keys, const char *name, calm_gguf_kind kind, size_t n)
{
    begin_key(keys, name, CALM_GGUF_ARRAY);
    append_number(&keys->bytes, (uint64_t)kind, 4);
    append_number(&keys->bytes, n, 8);
}

void calm_gguf_add_bytes(calm_gguf_keys *keys, const char *name, const void *bytes, size_t n)
{
    calm_gguf_add_array(keys, name, CALM_GGUF_U8, n);
    calm_text_append(&keys->bytes, bytes, n);
}

void calm_gguf_element_string(calm_gguf_keys *keys, const char *text, size_t n_bytes)
{
    append_string(&keys->bytes, text, n_bytes);
}

void calm_gguf_element_i32(calm_gguf_keys *keys, int32_t value)
{
    append_number(&keys->bytes, (uint32_t)value, 4);
}

void calm_gguf_element_f32(calm_gguf_keys *keys, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    append_number(&keys->bytes, bits, 4);
}

void calm_gguf_element_bool(calm_gguf_keys *keys, bool value)
{
    append_number(&keys->bytes, value, 1);
}

/* ---- the table ---- */

bool calm_gguf_tensor_bytes(const calm_gguf_tensor *tensor, size_t *bytes)
{
    const calm_ggml_info *info = calm_ggml_find((uint32_t)tensor->type);
    const size_t first = tensor->n_dims ? tensor->dims[0] : 1;
    if (!info || tensor->n_dims > CALM_GGUF_MAX_DIMS || first % info->elements)
        return false;
    *bytes = info->bytes;
    for (int i = 0; i < tensor->n_dims; i++)
        if (!calm_size_mul(bytes, *bytes, i ? tensor->dims[i] : first / info->elements))
            return false;
    return true;
}

static size_t padding(uint64_t at)
{
    return (size_t)(-at & (CALM_GGUF_ALIGNMENT - 1));
}

void calm_gguf_sizes(const calm_gguf_tensor *tensor, size_t *data, size_t *label)
{
    if (!calm_gguf_tensor_bytes(tensor, data))
        *data = 0;
    *data += padding(*data);
    *label = 8 + strlen(tensor->name) + 4 + 8 * (size_t)tensor->n_dims + 4 + 8;
}

size_t calm_gguf_head_bytes(const calm_gguf_keys *keys)
{
    return 4 + 4 + 8 + 8 + keys->bytes.length + CALM_GGUF_ALIGNMENT - 1;
}

static calm_status append_tensor(calm_ctx *ctx, const calm_gguf_tensor *tensor, size_t *offset, calm_text *to)
{
    const size_t length = strlen(tensor->name);
    size_t bytes;
    if (length == 0 || length > CALM_GGUF_NAME_MAX)
        return calm_fail(ctx, CALM_EARG, "tensor %s: a name of %zu bytes; GGUF takes 1 to %d", tensor->name, length,
                         CALM_GGUF_NAME_MAX);
    append_string(to, tensor->name, length);
    append_number(to, (uint64_t)tensor->n_dims, 4);
    for (int i = 0; i < tensor->n_dims; i++)
        append_number(to, tensor->dims[i], 8);
    append_number(to, (uint64_t)tensor->type, 4);
    append_number(to, *offset, 8);
    if (!calm_gguf_tensor_bytes(tensor, &bytes) || !calm_size_add(offset, *offset, bytes) ||
        !calm_size_add(offset, *offset, padding(*offset)))
        return calm_fail(ctx, CALM_EARG, "tensor %s: its size overflows, or its rows are not whole blocks",
                         tensor->name);
    return CALM_OK;
}

static calm_status check_names(calm_ctx *ctx, const calm_gguf_tensor *tensors, size_t n)
{
    const char **names;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, names, n));
    for (size_t i = 0; i < n; i++)
        names[i] = tensors[i].name;
    if (n)
        qsort(names, n, sizeof *names, calm_words_compare);
    for (size_t i = 1; i < n; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            return calm_fail(ctx, CALM_EARG, "tensor %s is there twice", names[i]);
    return CALM_OK;
}

static calm_status put_text(calm_ctx *ctx, calm_gguf_writer *writer, const calm_text *text)
{
    CALM_TRY(calm_text_check(ctx, text));
    return calm_writer_put(ctx, &writer->file, text->data, text->length);
}

static calm_status put_zeros(calm_ctx *ctx, calm_gguf_writer *writer)
{
    static const uint8_t zeros[CALM_GGUF_ALIGNMENT];
    return calm_writer_put(ctx, &writer->file, zeros, padding(writer->file.written));
}

calm_status calm_gguf_begin(calm_ctx *ctx, calm_gguf_writer *writer, const char *path, const calm_gguf_keys *keys,
                            const calm_gguf_tensor *tensors, size_t n)
{
    CALM_SCOPED_TEXT(head);
    CALM_SCOPED_TEXT(table);
    size_t offset = 0;
    *writer = (calm_gguf_writer){.tensors = tensors, .n = n};
    CALM_TRY(check_names(ctx, tensors, n));
    CALM_TRY(calm_writer_open(ctx, &writer->file, path));
    calm_text_append(&head, CALM_GGUF_MAGIC, 4);
    append_number(&head, 3, 4);
    append_number(&head, n, 8);
    append_number(&head, keys->n, 8);
    CALM_TRY(put_text(ctx, writer, &head));
    CALM_TRY(put_text(ctx, writer, &keys->bytes));
    for (size_t i = 0; i < n; i++)
        CALM_TRY(append_tensor(ctx, &tensors[i], &offset, &table));
    CALM_TRY(put_text(ctx, writer, &table));
    return put_zeros(ctx, writer);
}

calm_status calm_gguf_put(calm_ctx *ctx, calm_gguf_writer *writer, const void *data, size_t bytes)
{
    size_t expected = 0;
    assert(writer->next < writer->n);
    const bool sized = calm_gguf_tensor_bytes(&writer->tensors[writer->next], &expected);
    assert(sized && bytes <= expected - writer->filled);
    (void)sized;
    writer->filled += bytes;
    CALM_TRY(calm_writer_put(ctx, &writer->file, data, bytes));
    if (writer->filled < expected)
        return CALM_OK;
    writer->next++;
    writer->filled = 0;
    return put_zeros(ctx, writer);
}

calm_status calm_gguf_end(calm_ctx *ctx, calm_gguf_writer *writer)
{
    assert(ctx->status != CALM_OK || writer->next == writer->n);
    return calm_writer_close(ctx, &writer->file);
}
