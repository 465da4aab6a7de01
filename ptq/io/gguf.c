/* GGUF, reading. */
#include "ptq/io/gguf_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/base/file.h"
#include "ptq/base/message.h"
#include "ptq/io/ggml_blocks.h"
#include "ptq/tensor/dtype.h"

#define DEFAULT_ALIGNMENT 32
#define ALIGNMENT_MAX ((size_t)1 << 30)
#define KEY_NAME_MAX 65535

/* Smallest size of a key (length, one character, type, one byte) and of a tensor (length, one character,
 * dimensions, type, offset): the file's size bounds their counts. */
#define KEY_LEAST 14
#define TENSOR_LEAST 25

/* A name in the file, until all names are copied at once. */
typedef struct raw_name {
    const uint8_t *text;
    size_t n;
} raw_name;

/* Name of a key or a tensor, and its index in the file. */
typedef struct name_entry {
    const char *name;
    size_t index;
} name_entry;

struct calm_gguf {
    calm_arena arena;
    const char *path;
    calm_mapping map;
    calm_gguf_key *keys;
    calm_gguf_tensor *tensors;
    name_entry *sorted_keys, *sorted_tensors;    /* sorted by name, in one array */
    size_t n_keys, n_tensors;
    calm_gguf *next;                            /* next part, whose tensors are also in `tensors`; NULL: none */
    size_t end;                                 /* file offset of the end of the last tensor and its padding */
};

/* Read position in a file. */
typedef struct cursor {
    const char *path;
    const uint8_t *data;
    size_t at, bytes;
    char place[128];     /* "key general.name", "tensor 3", for messages */
} cursor;

static const struct {
    const char *name;
    size_t bytes;              /* 0: no fixed size */
    bool is_whole, is_signed;
} kinds[CALM_GGUF_N_KINDS] = {
    {"u8", 1, true, false},     {"i8", 1, true, true},   {"u16", 2, true, false},    {"i16", 2, true, true},
    {"u32", 4, true, false},    {"i32", 4, true, true},  {"f32", 4, false, true},    {"bool", 1, false, false},
    {"string", 0, false, false}, {"array", 0, false, false}, {"u64", 8, true, false}, {"i64", 8, true, true},
    {"f64", 8, false, true},
};

static uint64_t little_endian(const uint8_t *at, size_t n)
{
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

/* ---- the cursor: read_all puts file and place before these messages ---- */

static calm_status need(calm_ctx *ctx, const cursor *in, uint64_t bytes, const char *what)
{
    if (bytes > in->bytes - in->at)
        return calm_fail(ctx, CALM_EFORMAT, "%s takes %llu bytes, but only %zu are left (truncated download?)", what,
                         (unsigned long long)bytes, in->bytes - in->at);
    return CALM_OK;
}

static calm_status read_number(calm_ctx *ctx, cursor *in, size_t bytes, const char *what, uint64_t *out)
{
    CALM_TRY(need(ctx, in, bytes, what));
    *out = little_endian(in->data + in->at, bytes);
    in->at += bytes;
    return CALM_OK;
}

static calm_status read_name(calm_ctx *ctx, cursor *in, size_t most, raw_name *out)
{
    uint64_t n;
    CALM_TRY(read_number(ctx, in, 8, "the length of its name", &n));
    CALM_TRY(need(ctx, in, n, "its name"));
    *out = (raw_name){in->data + in->at, (size_t)n};
    if (n == 0 || n > most)
        return calm_fail(ctx, CALM_EFORMAT, "its name has %llu bytes, expected 1 to %zu", (unsigned long long)n, most);
    if (memchr(out->text, 0, out->n))
        return calm_fail(ctx, CALM_EFORMAT, "its name holds a zero byte");
    in->at += out->n;
    return CALM_OK;
}

/* ---- keys ---- */

static calm_status skip_strings(calm_ctx *ctx, cursor *in, uint64_t n)
{
    if (n > (in->bytes - in->at) / 8)
        return calm_fail(ctx, CALM_EFORMAT, "%llu strings, more than the %zu bytes left can hold",
                         (unsigned long long)n, in->bytes - in->at);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t length;
        CALM_TRY(read_number(ctx, in, 8, "the length of a string", &length));
        CALM_TRY(need(ctx, in, length, "a string"));
        in->at += (size_t)length;
    }
    return CALM_OK;
}

static calm_status read_elements(calm_ctx *ctx, cursor *in, uint64_t n, calm_gguf_key *key)
{
    const size_t begin = in->at;
    key->data = in->data + begin;
    if (key->kind == CALM_GGUF_STRING)
        CALM_TRY(skip_strings(ctx, in, n));
    else {
        const size_t size = kinds[key->kind].bytes;
        if (n > (in->bytes - in->at) / size)
            return calm_fail(ctx, CALM_EFORMAT, "%llu values of type %s reach past the end of the file",
                             (unsigned long long)n, kinds[key->kind].name);
        in->at += (size_t)n * size;
    }
    key->n = (size_t)n;
    key->bytes = in->at - begin;
    for (size_t i = 0; key->kind == CALM_GGUF_BOOL && i < key->n; i++)
        if (key->data[i] > 1)
            return calm_fail(ctx, CALM_EFORMAT, "a bool is %d, expected 0 or 1", key->data[i]);
    return CALM_OK;
}

static calm_status read_kind(calm_ctx *ctx, cursor *in, const char *what, calm_gguf_kind *out)
{
    uint64_t kind;
    CALM_TRY(read_number(ctx, in, 4, what, &kind));
    if (kind >= CALM_GGUF_N_KINDS)
        return calm_fail(ctx, CALM_EFORMAT, "%s is %llu, expected 0 to %d", what, (unsigned long long)kind,
                         CALM_GGUF_N_KINDS - 1);
    *out = (calm_gguf_kind)kind;
    return CALM_OK;
}

static calm_status read_key(calm_ctx *ctx, cursor *in, size_t index, raw_name *name, calm_gguf_key *key)
{
    uint64_t n = 1;
    snprintf(in->place, sizeof in->place, "key %zu", index);
    CALM_TRY(read_name(ctx, in, KEY_NAME_MAX, name));
    snprintf(in->place, sizeof in->place, "key %.*s", (int)(name->n < 100 ? name->n : 100), (const char *)name->text);
    CALM_TRY(read_kind(ctx, in, "the type of its value", &key->kind));
    if (key->kind == CALM_GGUF_ARRAY) {
        key->array = true;
        CALM_TRY(read_kind(ctx, in, "the type of its elements", &key->kind));
        if (key->kind == CALM_GGUF_ARRAY)
            return calm_fail(ctx, CALM_EUNSUPPORTED, "an array of arrays, which llama.cpp does not read");
        CALM_TRY(read_number(ctx, in, 8, "the number of its elements", &n));
    }
    return read_elements(ctx, in, n, key);
}

/* ---- tensors ---- */

static calm_status measure(calm_ctx *ctx, calm_gguf_tensor *tensor)
{
    const calm_ggml_info *info = calm_ggml_find(tensor->type);
    tensor->n_elements = 1;
    for (int i = 0; i < tensor->n_dims; i++)
        if (!calm_size_mul(&tensor->n_elements, tensor->n_elements, tensor->dims[i]))
            return calm_fail(ctx, CALM_EFORMAT, "the product of its sizes overflows");
    if (tensor->dims[0] % info->elements)
        return calm_fail(ctx, CALM_EFORMAT, "rows of %zu elements, expected a multiple of %zu for type %s",
                         tensor->dims[0], info->elements, info->name);
    if (!calm_size_mul(&tensor->bytes, tensor->n_elements / info->elements, info->bytes))
        return calm_fail(ctx, CALM_EFORMAT, "its size overflows");
    return CALM_OK;
}

/* Reads a row of the tensor table; *offset is the offset of its data. */
static calm_status read_tensor(calm_ctx *ctx, cursor *in, size_t index, raw_name *name, calm_gguf_tensor *tensor,
                               uint64_t *offset)
{
    uint64_t n_dims, size, type;
    snprintf(in->place, sizeof in->place, "tensor %zu", index);
    CALM_TRY(read_name(ctx, in, CALM_GGUF_NAME_MAX, name));
    snprintf(in->place, sizeof in->place, "tensor %.*s", (int)name->n, (const char *)name->text);
    CALM_TRY(read_number(ctx, in, 4, "the number of its dimensions", &n_dims));
    if (n_dims > CALM_GGUF_MAX_DIMS)
        return calm_fail(ctx, CALM_EFORMAT, "%llu dimensions, expected at most %d", (unsigned long long)n_dims,
                         CALM_GGUF_MAX_DIMS);
    tensor->n_dims = (int)n_dims;
    for (int i = 0; i < CALM_GGUF_MAX_DIMS; i++) {
        tensor->dims[i] = 1;
        if (i >= tensor->n_dims)
            continue;
        CALM_TRY(read_number(ctx, in, 8, "a size", &size));
        if (size == 0 || size > INT64_MAX)
            return calm_fail(ctx, CALM_EFORMAT, "size %d is %llu, expected 1 to 2^63 - 1", i, (unsigned long long)size);
        tensor->dims[i] = (size_t)size;
    }
    CALM_TRY(read_number(ctx, in, 4, "its type", &type));
    if (!calm_ggml_find((uint32_t)type))
        return calm_fail(ctx, CALM_EUNSUPPORTED, "its type is %llu, which is not known", (unsigned long long)type);
    tensor->type = (calm_ggml_type)type;
    CALM_TRY(read_number(ctx, in, 8, "the offset of its data", offset));
    return measure(ctx, tensor);
}

/* ---- names ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const name_entry *)a)->name, ((const name_entry *)b)->name);
}

static calm_status sort_names(calm_ctx *ctx, const calm_gguf *file, name_entry *entries, size_t n, const char *what)
{
    if (n)
        qsort(entries, n, sizeof *entries, by_name);
    for (size_t i = 1; i < n; i++)
        if (strcmp(entries[i - 1].name, entries[i].name) == 0)
            return calm_fail(ctx, CALM_EFORMAT, "%s: %s %.100s is there twice", file->path, what, entries[i].name);
    return CALM_OK;
}

/* Copies all names, NUL-terminated, to one allocation; names[0 .. n_keys - 1] are the keys'. */
static calm_status keep_names(calm_ctx *ctx, calm_gguf *file, const raw_name *names)
{
    const size_t n_keys = file->n_keys, n = n_keys + file->n_tensors;
    size_t bytes = 1;
    char *at;
    for (size_t i = 0; i < n; i++)
        bytes += names[i].n + 1;
    CALM_TRY(CALM_NEW_RAW(ctx, &file->arena, at, bytes));
    CALM_TRY(CALM_NEW(ctx, &file->arena, file->sorted_keys, n));
    file->sorted_tensors = file->sorted_keys + n_keys;
    for (size_t i = 0; i < n; i++) {
        memcpy(at, names[i].text, names[i].n);
        at[names[i].n] = '\0';
        *(i < n_keys ? &file->keys[i].name : &file->tensors[i - n_keys].name) = at;
        file->sorted_keys[i] = (name_entry){at, i < n_keys ? i : i - n_keys};
        at += names[i].n + 1;
    }
    CALM_TRY(sort_names(ctx, file, file->sorted_keys, n_keys, "key"));
    return sort_names(ctx, file, file->sorted_tensors, file->n_tensors, "tensor");
}

/* Returns NULL when absent. */
static const name_entry *find_name(const name_entry *entries, size_t n, const char *name)
{
    const name_entry wanted = {.name = name};
    return n ? bsearch(&wanted, entries, n, sizeof *entries, by_name) : NULL;
}

/* ---- the file ---- */

static calm_status read_head(calm_ctx *ctx, cursor *in, calm_gguf *file)
{
    uint64_t version, n_tensors, n_keys;
    CALM_TRY(calm_refuse_pointer(ctx, in->path, in->data, in->bytes));
    if (in->bytes < 24 || memcmp(in->data, CALM_GGUF_MAGIC, 4) != 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s: it does not begin with \"GGUF\" and 20 more bytes", in->path);
    in->at = 4;
    CALM_TRY(read_number(ctx, in, 4, "the version", &version));
    if (version == UINT64_C(0x03000000) || version == UINT64_C(0x02000000))
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: a big-endian GGUF file; calm reads little-endian ones", in->path);
    if (version != 2 && version != 3)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: GGUF version %llu, expected 2 or 3", in->path,
                         (unsigned long long)version);
    CALM_TRY(read_number(ctx, in, 8, "the number of tensors", &n_tensors));
    CALM_TRY(read_number(ctx, in, 8, "the number of keys", &n_keys));
    const size_t left = in->bytes - in->at;
    if (n_keys > left / KEY_LEAST || n_tensors > left / TENSOR_LEAST)
        return calm_fail(ctx, CALM_EFORMAT, "%s: %llu keys and %llu tensors, more than its %zu bytes can hold",
                         in->path, (unsigned long long)n_keys, (unsigned long long)n_tensors, in->bytes);
    file->n_keys = (size_t)n_keys;
    file->n_tensors = (size_t)n_tensors;
    return CALM_OK;
}

static calm_status find_alignment(calm_ctx *ctx, const calm_gguf *file, size_t *out)
{
    const calm_gguf_key *key = calm_gguf_find_key(file, "general.alignment");
    int64_t value = 0;
    *out = DEFAULT_ALIGNMENT;
    if (!key)
        return CALM_OK;
    if (key->kind != CALM_GGUF_U32 || key->array)
        return calm_fail(ctx, CALM_EFORMAT, "%s: key general.alignment is of type %s%s, expected u32", file->path,
                         key->array ? "array of " : "", kinds[key->kind].name);
    if (!calm_gguf_int(key, 0, &value) || value <= 0 || (size_t)value > ALIGNMENT_MAX || (value & (value - 1)) != 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s: key general.alignment is %lld, expected a power of two up to 2^30",
                         file->path, (long long)value);
    *out = (size_t)value;
    return CALM_OK;
}

static bool pad(size_t *at, size_t alignment)
{
    if (!calm_size_add(at, *at, alignment - 1))
        return false;
    *at &= ~(alignment - 1);
    return true;
}

/* Computes the addresses of all tensors; their offsets must be consecutive. */
static calm_status place_tensors(calm_ctx *ctx, calm_gguf *file, const cursor *in, const uint64_t *offsets)
{
    size_t alignment, begin = in->at, at = 0;
    CALM_TRY(find_alignment(ctx, file, &alignment));
    if (!pad(&begin, alignment) || (file->n_tensors && begin > in->bytes))
        return calm_fail(ctx, CALM_EFORMAT,
                         "%s: the data begin at byte %zu, but the file has %zu (truncated download?)", in->path, begin,
                         in->bytes);
    for (size_t i = 0; i < file->n_tensors; i++) {
        calm_gguf_tensor *tensor = &file->tensors[i];
        if (offsets[i] != at)
            return calm_fail(ctx, CALM_EFORMAT,
                             "%s: tensor %s: offset %llu, expected %zu: tensors lie one after the other, each "
                             "padded to %zu bytes",
                             in->path, tensor->name, (unsigned long long)offsets[i], at, alignment);
        if (at > in->bytes - begin || tensor->bytes > in->bytes - begin - at)
            return calm_fail(ctx, CALM_EFORMAT,
                             "%s: tensor %s: %zu bytes from offset %zu on reach past the %zu data bytes of the "
                             "file (truncated download?)",
                             in->path, tensor->name, tensor->bytes, at, in->bytes - begin);
        tensor->data = in->data + begin + at;
        at += tensor->bytes;
        if (!pad(&at, alignment))
            return calm_fail(ctx, CALM_EFORMAT, "%s: tensor %s: its end overflows", in->path, tensor->name);
    }
    file->end = file->n_tensors ? begin + at : in->at;
    return CALM_OK;
}

static calm_status read_all(calm_ctx *ctx, calm_gguf *file)
{
    cursor in = {.path = file->path, .data = file->map.data, .bytes = file->map.bytes};
    raw_name *names;
    uint64_t *offsets;
    CALM_TRY(read_head(ctx, &in, file));
    CALM_TRY(CALM_NEW(ctx, &file->arena, file->keys, file->n_keys));
    CALM_TRY(CALM_NEW(ctx, &file->arena, file->tensors, file->n_tensors));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, names, file->n_keys + file->n_tensors));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, offsets, file->n_tensors));
    calm_status status = CALM_OK;
    for (size_t i = 0; i < file->n_keys && status == CALM_OK; i++)
        status = read_key(ctx, &in, i, &names[i], &file->keys[i]);
    for (size_t i = 0; i < file->n_tensors && status == CALM_OK; i++)
        status = read_tensor(ctx, &in, i, &names[file->n_keys + i], &file->tensors[i], &offsets[i]);
    if (status != CALM_OK)
        return calm_fail_prefix(ctx, "%s: %s", file->path, in.place);
    CALM_TRY(keep_names(ctx, file, names));
    return place_tensors(ctx, file, &in, offsets);
}

calm_status calm_gguf_open(calm_ctx *ctx, const char *path, calm_gguf **out)
{
    *out = NULL;
    calm_gguf *file = calloc(1, sizeof *file);
    if (!file)
        return calm_fail(ctx, CALM_ENOMEM, "%s: no memory to open it", path);
    CALM_SCOPED_SCRATCH(ctx);
    if (calm_strf(ctx, &file->arena, &file->path, "%s", path) == CALM_OK &&
        calm_map_file(ctx, path, &file->map) == CALM_OK && read_all(ctx, file) == CALM_OK)
        *out = file;
    else
        calm_gguf_close(file);
    return ctx->status;
}

void calm_gguf_close(calm_gguf *file)
{
    if (!file)
        return;
    calm_gguf_close(file->next);
    calm_unmap_file(&file->map);
    calm_arena_clear(&file->arena);
    free(file);
}

/* ---- lookup ---- */

const char *calm_gguf_path(const calm_gguf *file)
{
    return file->path;
}

size_t calm_gguf_n_keys(const calm_gguf *file)
{
    return file->n_keys;
}

const calm_gguf_key *calm_gguf_key_at(const calm_gguf *file, size_t index)
{
    return &file->keys[index];
}

size_t calm_gguf_n_tensors(const calm_gguf *file)
{
    return file->n_tensors;
}

const calm_gguf_tensor *calm_gguf_tensor_at(const calm_gguf *file, size_t index)
{
    return &file->tensors[index];
}

const calm_gguf_key *calm_gguf_find_key(const calm_gguf *file, const char *name)
{
    const name_entry *found = find_name(file->sorted_keys, file->n_keys, name);
    return found ? &file->keys[found->index] : NULL;
}

const calm_gguf_tensor *calm_gguf_find_tensor(const calm_gguf *file, const char *name)
{
    const name_entry *found = find_name(file->sorted_tensors, file->n_tensors, name);
    return found ? &file->tensors[found->index] : NULL;
}

size_t calm_gguf_spare(const calm_gguf *file)
{
    return file->map.bytes > file->end ? file->map.bytes - file->end : 0;
}

/* ---- values ---- */

bool calm_gguf_int(const calm_gguf_key *key, size_t index, int64_t *out)
{
    if (!key || index >= key->n || !kinds[key->kind].is_whole)
        return false;
    const size_t size = kinds[key->kind].bytes, unused = 64 - 8 * size;
    const uint64_t value = little_endian(key->data + index * size, size);
    /* Moves the sign bit to the top; the shift back extends it. */
    *out = kinds[key->kind].is_signed ? (int64_t)(value << unused) >> unused : (int64_t)value;
    return kinds[key->kind].is_signed || value <= INT64_MAX;
}

bool calm_gguf_number(const calm_gguf_key *key, size_t index, double *out)
{
    int64_t whole;
    float single;
    if (calm_gguf_int(key, index, &whole))
        *out = (double)whole;
    else if (!key || index >= key->n || (key->kind != CALM_GGUF_F32 && key->kind != CALM_GGUF_F64))
        return false;
    else if (key->kind == CALM_GGUF_F64)
        memcpy(out, key->data + index * sizeof *out, sizeof *out);
    else
        *out = (double)*(float *)memcpy(&single, key->data + index * sizeof single, sizeof single);
    return true;
}

bool calm_gguf_next_string(const calm_gguf_key *key, size_t *at, const char **text, size_t *n)
{
    if (!key || key->kind != CALM_GGUF_STRING || *at >= key->bytes)
        return false;
    *n = (size_t)little_endian(key->data + *at, 8);
    *text = (const char *)key->data + *at + 8;
    *at += 8 + *n;
    return true;
}

bool calm_gguf_is(const calm_gguf_key *key, const char *text)
{
    const char *found;
    size_t at = 0, n;
    return key && !key->array && calm_gguf_next_string(key, &at, &found, &n) && n == strlen(text)
           && memcmp(found, text, n) == 0;
}

/* ---- tensors ---- */

/* Fails for a type that calm cannot dequantize; the message lists the types that it can. */
static calm_status refuse_type(calm_ctx *ctx, const calm_gguf *file, const calm_gguf_tensor *tensor, const char *type)
{
    char readable[256] = "";
    for (uint32_t number = 0; number < CALM_GGML_END; number++)
        if (calm_ggml_find(number) && calm_ggml_readable((calm_ggml_type)number))
            snprintf(readable + strlen(readable), sizeof readable - strlen(readable), "%s%s", *readable ? ", " : "",
                     calm_ggml_find(number)->name);
    return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: tensor %s: type %s; calm reads %s", file->path, tensor->name, type,
                     readable);
}

calm_status calm_gguf_to_f32(calm_ctx *ctx, const calm_gguf *file, const calm_gguf_tensor *tensor, size_t first,
                             size_t n, float *out)
{
    const calm_ggml_info *info = calm_ggml_find(tensor->type);
    const size_t width = tensor->dims[0];
    if (!calm_ggml_readable(tensor->type))
        return refuse_type(ctx, file, tensor, info->name);
    CALM_TRY(calm_ggml_to_f32(ctx, tensor->type, tensor->data + first * (width / info->elements) * info->bytes,
                              n * width, out));
    const size_t bad = calm_find_nonfinite(out, n * width);
    if (bad < n * width)
        return calm_fail(ctx, CALM_ENUMERIC, "%s: tensor %s: element %zu is not finite", file->path, tensor->name,
                         first * width + bad);
    return CALM_OK;
}

calm_status calm_gguf_adopt(calm_ctx *ctx, calm_gguf *file, calm_gguf *part)
{
    const size_t n = file->n_tensors + part->n_tensors;
    calm_gguf_tensor *tensors;
    name_entry *sorted;
    part->next = file->next;
    file->next = part;
    CALM_TRY(CALM_NEW(ctx, &file->arena, tensors, n));
    CALM_TRY(CALM_NEW(ctx, &file->arena, sorted, n));
    if (file->n_tensors)
        memcpy(tensors, file->tensors, file->n_tensors * sizeof *tensors);
    if (part->n_tensors)
        memcpy(tensors + file->n_tensors, part->tensors, part->n_tensors * sizeof *tensors);
    for (size_t i = 0; i < n; i++)
        sorted[i] = (name_entry){tensors[i].name, i};
    file->tensors = tensors;
    file->sorted_tensors = sorted;
    file->n_tensors = n;
    return sort_names(ctx, file, sorted, n, "tensor");
}

void calm_gguf_release_part(const calm_gguf *file, const calm_gguf_tensor *tensor, size_t offset, size_t bytes)
{
    while (file->next && (tensor->data < file->map.data || tensor->data > file->map.data + file->map.bytes))
        file = file->next;
    calm_mapping_release(&file->map, (size_t)(tensor->data - file->map.data) + offset, bytes);
}
