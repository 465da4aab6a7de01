/* Faults: applies them to files. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ptq/base/file.h"
#include "ptq/io/gguf.h"
#include "ptq/io/json.h"
#include "ptq/io/safetensors.h"
#include "tests/tools/break_faults.h"

#define MOST ((size_t)1 << 32)

static calm_status nothing(calm_ctx *ctx, const break_fault *fault)
{
    return calm_fail(ctx, CALM_ENOTFOUND, "fault %s: there is no %s", fault->name, fault->a);
}

/* ---- files ---- */

static calm_status copy_all(calm_ctx *ctx, const char *from, const char *to)
{
    DIR *dir = opendir(from);
    calm_status status = calm_make_directories(ctx, to);
    if (!dir)
        return calm_fail_errno(ctx, 2, "%s", from);
    for (struct dirent *at; status == CALM_OK && (at = readdir(dir));) {
        char *x = NULL, *y = NULL;
        if (at->d_name[0] == '.')
            continue;
        status = calm_path_join(ctx, ctx->scratch, &x, from, at->d_name);
        if (status == CALM_OK)
            status = calm_path_join(ctx, ctx->scratch, &y, to, at->d_name);
        if (status == CALM_OK && !calm_is_directory(x))
            status = calm_copy_file(ctx, x, y);
    }
    closedir(dir);
    return status;
}

static calm_status read_all(calm_ctx *ctx, const char *dir, const char *file, char **path, char **bytes, size_t *n)
{
    CALM_TRY(calm_path_join(ctx, ctx->scratch, path, dir, file));
    return calm_read_file(ctx, *path, MOST, bytes, n);
}

/* Writes "4@00ff" or "00ff" over bytes [n] from `at` on; "4096*00" repeats one byte. */
static calm_status poke(calm_ctx *ctx, const break_fault *fault, char *bytes, size_t n, size_t at)
{
    const char *hex = strchr(fault->b, '@'), *many = strchr(fault->b, '*');
    if (many && at + (size_t)atol(fault->b) <= n) {
        memset(bytes + at, (int)strtoul(many + 1, NULL, 16), (size_t)atol(fault->b));
        return CALM_OK;
    }
    if (hex)
        at += (size_t)atol(fault->b);
    for (hex = hex ? hex + 1 : fault->b; *hex; hex += 2, at++) {
        unsigned value;
        if (sscanf(hex, "%2x", &value) != 1 || at >= n)
            return calm_fail(ctx, CALM_EARG, "fault %s: %s does not fit", fault->name, fault->b);
        bytes[at] = (char)value;
    }
    return CALM_OK;
}

/* ---- JSON ---- */

/* Returns a copy of `value` with the member at `path` changed; sets *done if there was one. */
static calm_json *changed(const calm_json *value, const char *path, const calm_json *to, bool *done)
{
    const size_t length = strcspn(path, "/");
    const bool last = path[length] == 0, array = calm_json_typeof(value) == CALM_JSON_ARRAY;
    calm_json *out = array ? calm_json_new_array() : calm_json_new_object();
    const calm_json *member;
    const char *key;
    for (size_t i = 0; array && i < calm_json_size(value); i++) {
        const bool here = (size_t)atol(path) == i && path[0] != '+';
        *done |= here && last;
        if (!here || !last)
            calm_json_add(out, here ? changed(calm_json_at(value, i), path + length + 1, to, done)
                                    : calm_json_copy(calm_json_at(value, i)));
        else if (to)
            calm_json_add(out, calm_json_copy(to));
    }
    for (void *iter = NULL; !array && calm_json_next(value, &iter, &key, &member);) {
        const bool here = strlen(key) == length && strncmp(key, path, length) == 0;
        *done |= here && last;
        if (!here || !last)
            calm_json_set(out, key, here ? changed(member, path + length + 1, to, done) : calm_json_copy(member));
        else if (to)
            calm_json_set(out, key, calm_json_copy(to));
    }
    if (*done || !to || !last)
        return out;
    *done = true; /* a new member */
    if (array)
        calm_json_add(out, calm_json_copy(to));
    else
        calm_json_set(out, path, calm_json_copy(to));
    return out;
}

static calm_status change_member(calm_ctx *ctx, const break_fault *fault, const calm_json *root, calm_json **out)
{
    calm_json *list = NULL;
    char *text;
    bool done = false;
    *out = NULL;
    if (fault->b) {
        CALM_TRY(calm_strf(ctx, ctx->scratch, &text, "[%s]", fault->b));
        CALM_TRY(calm_json_parse(ctx, fault->name, text, strlen(text), &list));
    }
    *out = changed(root, fault->a, calm_json_at(list, 0), &done);
    calm_json_free(list);
    return done ? CALM_OK : nothing(ctx, fault);
}

static calm_status set_member(calm_ctx *ctx, const char *dir, const break_fault *fault)
{
    calm_json *root, *out;
    char *path;
    CALM_TRY(calm_path_join(ctx, ctx->scratch, &path, dir, fault->file ? fault->file : "config.json"));
    CALM_TRY(calm_json_read(ctx, path, MOST, &root));
    calm_status status = change_member(ctx, fault, root, &out);
    if (status == CALM_OK)
        status = calm_json_save(ctx, path, out);
    calm_json_free(out);
    calm_json_free(root);
    return status;
}

/* Changes the header of a safetensors file without its data. */
static calm_status set_header(calm_ctx *ctx, const char *dir, const break_fault *fault)
{
    calm_json *root, *out;
    char *path, *bytes;
    calm_text text;
    size_t n;
    uint64_t header;
    CALM_TRY(read_all(ctx, dir, fault->file ? fault->file : "model.safetensors", &path, &bytes, &n));
    memcpy(&header, bytes, sizeof header);
    CALM_TRY(calm_json_parse(ctx, path, bytes + 8, header, &root));
    calm_text_init(&text);
    calm_status status = change_member(ctx, fault, root, &out);
    if (status == CALM_OK)
        status = calm_json_write(ctx, out, 0, &text);
    if (status == CALM_OK) {
        const uint64_t length = text.length;
        char *data = NULL;
        status = CALM_NEW(ctx, ctx->scratch, data, 8 + length + n - 8 - header);
        if (status == CALM_OK) {
            memcpy(data, &length, 8);
            memcpy(data + 8, text.data, length);
            memcpy(data + 8 + length, bytes + 8 + header, n - 8 - header);
            status = calm_write_file(ctx, path, data, length + n - header);
        }
    }
    calm_text_clear(&text);
    calm_json_free(out);
    calm_json_free(root);
    return status;
}

/* ---- tensors ---- */

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

static int by_place(const void *a, const void *b)
{
    const calm_tensor *x = a, *y = b;
    return x->data < y->data ? -1 : x->data > y->data;
}

static calm_status new_name(calm_ctx *ctx, const break_fault *fault, const char *name, const char **out)
{
    char *text;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &text, "%.*s%s", (int)(strlen(name) - strlen(fault->a)), name, fault->b));
    *out = text;
    return CALM_OK;
}

/* Changes the tensors to write: list [*n], with room for one more. */
static calm_status change_tensors(calm_ctx *ctx, const break_fault *fault, calm_tensor *list, size_t *n)
{
    size_t i = 0;
    while (i < *n && !ends_with(list[i].name, fault->a))
        i++;
    if (i == *n)
        return nothing(ctx, fault);
    calm_tensor *at = &list[i];
    char *bytes;
    switch (fault->kind) {
    case BREAK_DROP:
        memmove(at, at + 1, (*n - i - 1) * sizeof *at);
        --*n;
        return CALM_OK;
    case BREAK_RENAME:
        return new_name(ctx, fault, at->name, &at->name);
    case BREAK_COPY:
        list[(*n)++] = *at;
        return new_name(ctx, fault, at->name, &list[*n - 1].name);
    case BREAK_DTYPE:
        at->dtype = calm_dtype_find(fault->b);
        return CALM_OK;
    case BREAK_SHAPE:
        at->shape[1] = list[i].shape[0] + list[i].shape[1] - (at->shape[0] = at->shape[1]);
        return CALM_OK;
    default:
        CALM_TRY(CALM_NEW(ctx, ctx->scratch, bytes, at->bytes));
        memcpy(bytes, at->data, at->bytes);
        CALM_TRY(poke(ctx, fault, bytes, at->bytes, 0));
        at->data = (const uint8_t *)bytes;
        return CALM_OK;
    }
}

static calm_status rewrite_tensors(calm_ctx *ctx, const char *from, const char *to, const break_fault *fault)
{
    calm_safetensors *set;
    calm_tensor *list;
    calm_safetensors_writer writer;
    char *source, *path;
    CALM_TRY(calm_path_join(ctx, ctx->scratch, &source, from, "model.safetensors"));
    CALM_TRY(calm_path_join(ctx, ctx->scratch, &path, to, "model.safetensors"));
    CALM_TRY(calm_safetensors_open(ctx, source, &set));
    size_t n = calm_safetensors_count(set);
    calm_status status = CALM_NEW(ctx, ctx->scratch, list, n + 1);
    for (size_t i = 0; i < n && status == CALM_OK; i++)
        list[i] = *calm_safetensors_at(set, i);
    if (status == CALM_OK) {
        qsort(list, n, sizeof *list, by_place);
        status = change_tensors(ctx, fault, list, &n);
    }
    if (status == CALM_OK)
        status = calm_safetensors_begin(ctx, &writer, path, list, n);
    for (size_t i = 0; i < n && status == CALM_OK; i++)
        status = calm_safetensors_put(ctx, &writer, list[i].data, list[i].bytes);
    if (status == CALM_OK)
        status = calm_safetensors_end(ctx, &writer);
    calm_safetensors_close(set);
    return status;
}

/* ---- bytes ---- */

static calm_status replace_bytes(calm_ctx *ctx, const char *dir, const break_fault *fault, const char *file)
{
    char *path, *bytes;
    size_t n;
    CALM_TRY(read_all(ctx, dir, file, &path, &bytes, &n));
    char *at = memmem(bytes, n, fault->a, strlen(fault->a));
    if (!at || strlen(fault->a) != strlen(fault->b))
        return nothing(ctx, fault);
    memcpy(at, fault->b, strlen(fault->b));
    return calm_write_file(ctx, path, bytes, n);
}

/* Returns the end of a length-prefixed string in a GGUF file. */
static char *behind_name(char *bytes, size_t n, const char *name)
{
    char *at = bytes;
    const size_t length = strlen(name);
    while ((at = memmem(at, n - (size_t)(at - bytes), name, length))) {
        uint64_t said = 0;
        if (at - bytes >= 8)
            memcpy(&said, at - 8, 8);
        if (said == length)
            return at + length;
        at++;
    }
    return NULL;
}

/* Merges the first two strings of an array, whose name ends at `at`: the same bytes, one element less. */
static calm_status swallow(calm_ctx *ctx, const break_fault *fault, char *at)
{
    uint64_t count, first, second;
    memcpy(&count, at + 8, 8);
    memcpy(&first, at + 16, 8);
    if (count < 2)
        return nothing(ctx, fault);
    memcpy(&second, at + 24 + first, 8);
    first += 8 + second;
    count--;
    memcpy(at + 8, &count, 8);
    memcpy(at + 16, &first, 8);
    return CALM_OK;
}

/* Finds the offset of a tensor's data in the file: the padded end of the last tensor is the end of the file. */
static calm_status data_offset(calm_ctx *ctx, const char *path, const break_fault *fault, size_t n, size_t *out)
{
    calm_gguf *file;
    CALM_TRY(calm_gguf_open(ctx, path, &file));
    const calm_gguf_tensor *last = calm_gguf_tensor_at(file, calm_gguf_n_tensors(file) - 1), *at = NULL;
    for (size_t i = 0; i < calm_gguf_n_tensors(file) && !at; i++)
        if (ends_with(calm_gguf_tensor_at(file, i)->name, fault->a))
            at = calm_gguf_tensor_at(file, i);
    if (at)
        *out = n - (size_t)(last->data + (last->bytes + 31) / 32 * 32 - at->data);
    calm_gguf_close(file);
    return at ? CALM_OK : nothing(ctx, fault);
}

static calm_status change_gguf(calm_ctx *ctx, const char *dir, const break_fault *fault)
{
    char *path, *bytes;
    size_t n, at = 0;
    CALM_TRY(read_all(ctx, dir, "model.gguf", &path, &bytes, &n));
    if (fault->kind == BREAK_DATA) {
        CALM_TRY(data_offset(ctx, path, fault, n, &at));
    } else {
        char *end = behind_name(bytes, n, fault->a);
        uint32_t word = 0;
        if (!end)
            return nothing(ctx, fault);
        if (fault->kind == BREAK_SWALLOW) {
            CALM_TRY(swallow(ctx, fault, end));
            return calm_write_file(ctx, path, bytes, n);
        }
        memcpy(&word, end, 4);
        at = (size_t)(end - bytes);
        at += fault->kind == BREAK_TYPE ? 4 + 8 * word : word == CALM_GGUF_ARRAY ? 16 : 4;
    }
    CALM_TRY(poke(ctx, fault, bytes, n, at));
    return calm_write_file(ctx, path, bytes, n);
}

/* ---- all ---- */

static calm_status change_file(calm_ctx *ctx, const char *dir, const break_fault *fault)
{
    char *path, *bytes, *other;
    size_t n;
    CALM_TRY(read_all(ctx, dir, fault->a, &path, &bytes, &n));
    switch (fault->kind) {
    case BREAK_CUT:
        return calm_write_file(ctx, path, bytes, n - (size_t)atol(fault->b));
    case BREAK_APPEND:
        CALM_TRY(calm_strf(ctx, ctx->scratch, &other, "%s", fault->b));
        CALM_TRY(CALM_NEW(ctx, ctx->scratch, other, n + strlen(fault->b)));
        memcpy(other, bytes, n);
        memcpy(other + n, fault->b, strlen(fault->b));
        return calm_write_file(ctx, path, other, n + strlen(fault->b));
    case BREAK_TEXT:
        return calm_write_file(ctx, path, fault->b, strlen(fault->b));
    case BREAK_MOVE:
        CALM_TRY(calm_path_join(ctx, ctx->scratch, &other, dir, fault->b));
        CALM_TRY(calm_write_file(ctx, other, bytes, n));
        return calm_remove_tree(ctx, path);
    default:
        return calm_remove_tree(ctx, path);
    }
}

calm_status break_checkpoint(calm_ctx *ctx, const char *from, const char *to, const break_fault *fault)
{
    if (calm_path_exists(to))
        return calm_fail(ctx, CALM_EEXIST, "%s is there already", to);
    CALM_TRY(copy_all(ctx, from, to));
    switch (fault->kind) {
    case BREAK_SET:
        return set_member(ctx, to, fault);
    case BREAK_ENTRY:
        return set_header(ctx, to, fault);
    case BREAK_DROP:
    case BREAK_RENAME:
    case BREAK_COPY:
    case BREAK_DTYPE:
    case BREAK_SHAPE:
    case BREAK_POKE:
        return rewrite_tensors(ctx, from, to, fault);
    case BREAK_HEADER:
        return replace_bytes(ctx, to, fault, "model.safetensors");
    case BREAK_BYTES:
        return replace_bytes(ctx, to, fault, "model.gguf");
    case BREAK_KEY:
    case BREAK_DATA:
    case BREAK_TYPE:
    case BREAK_SWALLOW:
        return change_gguf(ctx, to, fault);
    default:
        return change_file(ctx, to, fault);
    }
}
