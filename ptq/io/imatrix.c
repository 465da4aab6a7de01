/* Importance matrices in both formats. */
#include "ptq/io/imatrix.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/base/file.h"
#include "ptq/base/text.h"
#include "ptq/io/gguf.h"

/* Smallest size of an entry of a .dat file: the file's size bounds their number. */
#define ENTRY_LEAST 17
#define NAME_MAX_BYTES 1024

struct calm_imatrix {
    calm_arena arena;
    const char *path;
    calm_gguf *gguf;         /* NULL: a .dat file */
    calm_mapping map;        /* of a .dat file    */
    calm_imatrix_entry *entries;
    size_t n;
};

static float number_at(const void *numbers, size_t index)
{
    float value;
    memcpy(&value, (const char *)numbers + index * sizeof value, sizeof value);
    return value;
}

/* ---- both formats ---- */

static calm_status check_numbers(calm_ctx *ctx, const calm_imatrix *file, const char *name, const char *what,
                                 const void *numbers, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const float value = number_at(numbers, i);
        if (!isfinite(value) || value < 0)
            return calm_fail(ctx, CALM_EFORMAT, "%s: %s: %s %zu is %g, expected a sum of squares or a count, which is "
                             "finite and not negative", file->path, name, what, i, (double)value);
    }
    return CALM_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const calm_imatrix_entry *)a)->name, ((const calm_imatrix_entry *)b)->name);
}

static calm_status finish(calm_ctx *ctx, calm_imatrix *file)
{
    if (!file->n)
        return calm_fail(ctx, CALM_EFORMAT, "%s: an importance matrix without entries", file->path);
    qsort(file->entries, file->n, sizeof *file->entries, by_name);
    for (size_t i = 0; i < file->n; i++) {
        const calm_imatrix_entry *entry = &file->entries[i];
        if (i && strcmp(file->entries[i - 1].name, entry->name) == 0)
            return calm_fail(ctx, CALM_EFORMAT, "%s: %s is there twice", file->path, entry->name);
        CALM_TRY(check_numbers(ctx, file, entry->name, "value", entry->sums, entry->n));
        if (entry->counts)
            CALM_TRY(check_numbers(ctx, file, entry->name, "count", entry->counts, entry->n_counts));
    }
    return CALM_OK;
}

/* ---- GGUF ---- */

static calm_status read_pair(calm_ctx *ctx, const calm_imatrix *file, const calm_gguf_tensor *sums,
                             calm_imatrix_entry *out)
{
    const int length = (int)(strlen(sums->name) - strlen(CALM_IMATRIX_SUMS));
    const calm_gguf_tensor *counts;
    char *name, *other;
    CALM_TRY(calm_strf(ctx, (calm_arena *)&file->arena, &name, "%.*s", length, sums->name));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &other, "%s" CALM_IMATRIX_COUNTS, name));
    counts = calm_gguf_find_tensor(file->gguf, other);
    if (!counts)
        return calm_fail(ctx, CALM_EFORMAT, "%s: there is %s, but no %s", file->path, sums->name, other);
    if (sums->type != CALM_GGML_F32 || counts->type != CALM_GGML_F32)
        return calm_fail(ctx, CALM_EFORMAT, "%s: %s: expected sums and counts of type F32, found %s and %s", file->path,
                         name, calm_ggml_find(sums->type)->name, calm_ggml_find(counts->type)->name);
    if (counts->n_elements == 0 || sums->n_elements % counts->n_elements)
        return calm_fail(ctx, CALM_EFORMAT, "%s: %s: %zu counts, expected a number that divides its %zu sums",
                         file->path, name, counts->n_elements, sums->n_elements);
    *out = (calm_imatrix_entry){.name = name, .sums = sums->data, .counts = counts->data, .n = sums->n_elements,
                                .n_counts = counts->n_elements};
    return CALM_OK;
}

static calm_status read_gguf(calm_ctx *ctx, calm_imatrix *file)
{
    CALM_TRY(calm_gguf_open(ctx, file->path, &file->gguf));
    const size_t n = calm_gguf_n_tensors(file->gguf);
    if (!calm_gguf_is(calm_gguf_find_key(file->gguf, "general.type"), CALM_IMATRIX_TYPE))
        return calm_fail(ctx, CALM_EFORMAT, "%s: a GGUF file whose general.type is not \"imatrix\"; expected what "
                         "llama-imatrix writes", file->path);
    CALM_TRY(CALM_NEW(ctx, &file->arena, file->entries, n));
    for (size_t i = 0; i < n; i++) {
        const calm_gguf_tensor *tensor = calm_gguf_tensor_at(file->gguf, i);
        if (calm_text_ends_with(tensor->name, CALM_IMATRIX_SUMS))
            CALM_TRY(read_pair(ctx, file, tensor, &file->entries[file->n++]));
        else if (!calm_text_ends_with(tensor->name, CALM_IMATRIX_COUNTS))
            return calm_fail(ctx, CALM_EFORMAT, "%s: tensor %s; expected names that end in "
                             CALM_IMATRIX_SUMS " or " CALM_IMATRIX_COUNTS, file->path, tensor->name);
    }
    return finish(ctx, file);
}

/* ---- .dat ---- */

typedef struct cursor {
    const char *path;
    const uint8_t *data;
    size_t at, bytes;
} cursor;

static calm_status need(calm_ctx *ctx, const cursor *in, const char *where, const char *what, size_t bytes)
{
    return bytes <= in->bytes - in->at ? CALM_OK
        : calm_fail(ctx, CALM_EFORMAT, "%s: %s: %s takes %zu bytes, but only %zu are left (truncated, or no importance "
                    "matrix)", in->path, where, what, bytes, in->bytes - in->at);
}

/* Reads a positive 32-bit integer. */
static calm_status read_count(calm_ctx *ctx, cursor *in, const char *where, const char *what, int32_t *out)
{
    CALM_TRY(need(ctx, in, where, what, sizeof *out));
    memcpy(out, in->data + in->at, sizeof *out);
    in->at += sizeof *out;
    return *out > 0 ? CALM_OK
                    : calm_fail(ctx, CALM_EFORMAT, "%s: %s: %s is %d, expected a positive number", in->path, where,
                                what, (int)*out);
}

static calm_status read_name(calm_ctx *ctx, cursor *in, const char *where, calm_arena *arena, char **out)
{
    int32_t length;
    CALM_TRY(read_count(ctx, in, where, "the length of its name", &length));
    if (length > NAME_MAX_BYTES)
        return calm_fail(ctx, CALM_EFORMAT, "%s: %s: its name has %d bytes, expected at most %d (no importance "
                         "matrix?)", in->path, where, (int)length, NAME_MAX_BYTES);
    CALM_TRY(need(ctx, in, where, "its name", (size_t)length));
    if (memchr(in->data + in->at, 0, (size_t)length))
        return calm_fail(ctx, CALM_EFORMAT, "%s: %s: its name holds a zero byte", in->path, where);
    CALM_TRY(calm_strf(ctx, arena, out, "%.*s", (int)length, (const char *)in->data + in->at));
    in->at += (size_t)length;
    return CALM_OK;
}

static calm_status read_entry(calm_ctx *ctx, cursor *in, calm_imatrix *file, size_t index, calm_imatrix_entry *out)
{
    char *where, *name;
    int32_t n;
    CALM_SCOPED_SCRATCH(ctx);
    *out = (calm_imatrix_entry){.n_counts = 1};
    CALM_TRY(calm_strf(ctx, ctx->scratch, &where, "entry %zu", index));
    CALM_TRY(read_name(ctx, in, where, &file->arena, &name));
    CALM_TRY(read_count(ctx, in, name, "the number of its calls", &out->calls));
    CALM_TRY(read_count(ctx, in, name, "the number of its values", &n));
    CALM_TRY(need(ctx, in, name, "its values", (size_t)n * sizeof(float)));
    out->name = name;
    out->n = (size_t)n;
    out->sums = in->data + in->at;
    in->at += (size_t)n * sizeof(float);
    return CALM_OK;
}

static calm_status read_dat(calm_ctx *ctx, calm_imatrix *file)
{
    int32_t n;
    CALM_TRY(calm_map_file(ctx, file->path, &file->map));
    cursor in = {.path = file->path, .data = file->map.data, .bytes = file->map.bytes};
    CALM_TRY(read_count(ctx, &in, "its beginning", "the number of entries", &n));
    if ((size_t)n > (in.bytes - in.at) / ENTRY_LEAST)
        return calm_fail(ctx, CALM_EFORMAT, "%s: %d entries, more than its %zu bytes can hold (truncated, or no "
                         "importance matrix)", file->path, (int)n, in.bytes);
    CALM_TRY(CALM_NEW(ctx, &file->arena, file->entries, (size_t)n));
    for (; file->n < (size_t)n; file->n++)
        CALM_TRY(read_entry(ctx, &in, file, file->n, &file->entries[file->n]));
    return finish(ctx, file);    /* the name of the text, where it is there, says nothing that is used */
}

/* ---- opening ---- */

static calm_status read_file(calm_ctx *ctx, const char *path, calm_imatrix *file)
{
    CALM_TRY(calm_strf(ctx, &file->arena, &file->path, "%s", path));
    return calm_file_begins(path, CALM_GGUF_MAGIC) ? read_gguf(ctx, file) : read_dat(ctx, file);
}

calm_status calm_imatrix_open(calm_ctx *ctx, const char *path, calm_imatrix **out)
{
    *out = NULL;
    calm_imatrix *file = calloc(1, sizeof *file);
    if (!file)
        return calm_fail(ctx, CALM_ENOMEM, "%s: no memory to open it", path);
    CALM_SCOPED_SCRATCH(ctx);
    if (read_file(ctx, path, file) == CALM_OK)
        *out = file;
    else
        calm_imatrix_close(file);
    return ctx->status;
}

void calm_imatrix_close(calm_imatrix *file)
{
    if (!file)
        return;
    calm_gguf_close(file->gguf);
    calm_unmap_file(&file->map);
    calm_arena_clear(&file->arena);
    free(file);
}

/* ---- reading ---- */

const char *calm_imatrix_path(const calm_imatrix *file)
{
    return file->path;
}

size_t calm_imatrix_count(const calm_imatrix *file)
{
    return file->n;
}

const calm_imatrix_entry *calm_imatrix_at(const calm_imatrix *file, size_t index)
{
    return &file->entries[index];
}

const calm_imatrix_entry *calm_imatrix_find(const calm_imatrix *file, const char *name)
{
    const calm_imatrix_entry wanted = {.name = name};
    return bsearch(&wanted, file->entries, file->n, sizeof wanted, by_name);
}

calm_status calm_imatrix_means(calm_ctx *ctx, const calm_imatrix *file, const calm_imatrix_entry *entry, size_t part,
                               size_t n_parts, size_t width, double *out, bool *seen)
{
    const bool counted = entry->counts != NULL;
    size_t n;
    if (!calm_size_mul(&n, n_parts, width) || entry->n != n || (counted && entry->n_counts != n_parts))
        return calm_fail(ctx, CALM_EFORMAT, "%s: %s: expected values of %zu x %zu inputs, found %zu values and %zu "
                         "counts; it is of another model", file->path, entry->name, n_parts, width, entry->n,
                         entry->n_counts);
    const double count = counted ? (double)number_at(entry->counts, part) : (double)entry->calls;
    bool any = false;
    for (size_t i = 0; i < width && count > 0; i++) {
        out[i] = (double)number_at(entry->sums, part * width + i) / count;
        any |= out[i] > 0;
    }
    *seen = any;
    if (!any && n_parts == 1)
        return calm_fail(ctx, CALM_EFORMAT, "%s: %s: expected sums of tokens that were seen, found a count of %g and "
                         "sums of 0", file->path, entry->name, count);
    return CALM_OK;
}
