/* GGUF files: an opened file is consistent: every value and tensor is in the file and can be read, names are unique. */
#include <stdlib.h>
#include <string.h>

#include "ptq/gguf/gguf_names.h"
#include "ptq/io/ggml_blocks_impl.h"
#include "ptq/io/gguf_impl.h"
#include "tests/fuzz/fuzz.h"

/* Limits of the reader's memory for a small file, and of a tensor that is decoded at once. */
#define MOST_BYTES ((size_t)64 << 20)
#define MOST_ELEMENTS ((size_t)1 << 20)

/* A volatile sink, so that every byte is actually read. */
static volatile unsigned sink;

static void read_bytes(const uint8_t *data, size_t n)
{
    unsigned sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += data[i];
    sink = sum;
}

static void check_key(const calm_gguf *file, const calm_gguf_key *key)
{
    int64_t whole;
    double number;
    const char *text;
    size_t at = 0, n, n_strings = 0;
    if (calm_gguf_find_key(file, key->name) != key || (!key->array && key->n != 1))
        abort();
    read_bytes(key->data, key->bytes);
    for (size_t i = 0; i <= key->n; i++) {
        calm_gguf_int(key, i, &whole);
        calm_gguf_number(key, i, &number);
    }
    calm_gguf_is(key, "llama");
    while (calm_gguf_next_string(key, &at, &text, &n)) {
        read_bytes((const uint8_t *)text, n);
        n_strings++;
    }
    if (key->kind == CALM_GGUF_STRING && (n_strings != key->n || at != key->bytes))
        abort();
}

/* Blocks decode to codes within their bits, which encode to the same bytes. */
static void check_blocks(const calm_gguf_tensor *tensor)
{
    const calm_ggml_blocks *b = calm_ggml_blocks_find(tensor->type);
    const size_t size = calm_ggml_find(tensor->type)->bytes;
    for (size_t at = 0; b && at < tensor->bytes; at += size) {
        calm_ggml_parts parts;
        uint8_t again[CALM_GGML_BYTES_MAX];
        calm_ggml_unpack(b, tensor->data + at, &parts);
        for (size_t i = 0; i < b->elements; i++)
            if (parts.codes[i] >> calm_ggml_code_bits(b))
                abort();
        calm_ggml_pack(b, &parts, again);
        if (memcmp(again, tensor->data + at, size) != 0)
            abort();
    }
}

static void check_tensor(calm_ctx *ctx, const calm_gguf *file, const calm_gguf_tensor *tensor)
{
    size_t n = 1;
    float *values;
    if (calm_gguf_find_tensor(file, tensor->name) != tensor || strlen(tensor->name) > CALM_GGUF_NAME_MAX)
        abort();
    for (int i = 0; i < CALM_GGUF_MAX_DIMS; i++)
        n *= tensor->dims[i];
    if (n != tensor->n_elements)
        abort();
    read_bytes(tensor->data, tensor->bytes);
    check_blocks(tensor);
    if (n <= MOST_ELEMENTS && calm_alloc(ctx, ctx->scratch, &values, n, sizeof *values, "values") == CALM_OK)
        calm_gguf_to_f32(ctx, file, tensor, 0, n / tensor->dims[0], values);
    calm_ctx_clear_failure(ctx);
    calm_gguf_release_part(file, tensor, 0, tensor->bytes);
}

/* As a checkpoint: every entry can be read, and so can its last row alone. */
static void check_list(calm_ctx *ctx, const calm_gguf *file)
{
    calm_gguf_list list;
    float *values;
    if (calm_gguf_list_tensors(ctx, file, &list) != CALM_OK) {
        if (!ctx->message[0])
            abort();
        calm_ctx_clear_failure(ctx);
        return;
    }
    for (size_t i = 0; i < list.n; i++) {
        const calm_gguf_entry *entry = &list.entries[i];
        const size_t rows = entry->shape[0], n = rows * calm_gguf_entry_columns(entry);
        const size_t held = entry->stored->n_elements + (entry->rest ? entry->rest->n_elements : 0);
        const calm_arena_mark mark = calm_arena_save(ctx->scratch);
        if (n > held || (entry->name && !entry->name[0]))
            abort();
        if (n <= MOST_ELEMENTS && calm_alloc(ctx, ctx->scratch, &values, n, sizeof *values, "values") == CALM_OK &&
            calm_gguf_entry_to_f32(ctx, &list, entry, 0, rows, values) == CALM_OK)
            calm_gguf_entry_to_f32(ctx, &list, entry, rows - 1, 1, values);
        calm_ctx_clear_failure(ctx);
        calm_arena_rewind(ctx->scratch, mark);
    }
}

int calm_fuzz_one(const uint8_t *data, size_t size)
{
    calm_ctx *ctx = fuzz_context();
    calm_gguf *file;
    if (calm_gguf_open(ctx, fuzz_file("model.gguf", data, size), &file) != CALM_OK) {
        if (file || !ctx->message[0])
            abort();
        return 0;
    }
    size_t bytes = 0;
    for (size_t i = 0; i < calm_gguf_n_keys(file); i++)
        check_key(file, calm_gguf_key_at(file, i));
    for (size_t i = 0; i < calm_gguf_n_tensors(file); i++) {
        const calm_gguf_tensor *tensor = calm_gguf_tensor_at(file, i);
        check_tensor(ctx, file, tensor);
        bytes += tensor->bytes;
    }
    check_list(ctx, file);
    if (bytes > size || calm_gguf_spare(file) > size || ctx->out->used_bytes > MOST_BYTES) /* tensors do not overlap */
        abort();
    calm_gguf_close(file);
    return 0;
}
