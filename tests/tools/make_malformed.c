/* make_malformed: makes a GGUF or safetensors file with exactly one fault, which a reader must refuse, from a correct
 * one.
 *
 * The kinds come from public reports on readers of these files: counts and lengths that overflow in computations,
 * sizes whose sum wraps, tensors beyond the end of the file, alignments of 0, deep JSON, names with "..".  The walker
 * below shares no code with the readers under test. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/base/file.h"
#include "tests/tools/tool.h"

#define FILE_MAX ((size_t)1 << 30)
#define DEEP     20000

/* The change that a row makes. */
typedef enum action {
    CUT,       /* keep `value` bytes; above 2^63: cut -value bytes                   */
    U8, U32, U64, /* write `value` at the place                                      */
    TEXT,      /* write the text over the place                                      */
    HEADER,    /* safetensors: put `text` instead of the place's value in the header */
    WHOLE,     /* safetensors: the header is `text`                                  */
    NESTED     /* safetensors: the header is DEEP brackets                           */
} action;

/* A place of a GGUF file: "version", "tensors", "keys", "key:NAME:length|name|type|value|count", "element:NAME" (the
 * type of an array's elements), "tensor:N:length|name|dims|size0|size1|type|offset", N < 0 from the end;
 * "vector:last:size0": of the last tensor of one dimension, whose bytes are 4 times that. */
typedef struct fault {
    const char *name, *place;
    action action;
    uint64_t value;
    const char *text;
} fault;

#define MINUS(n) (UINT64_MAX - (n) + 1)

static const fault of_gguf[] = {
    {"empty", 0, CUT, 0, 0},
    {"header_cut", 0, CUT, 10, 0},
    {"keys_cut", 0, CUT, 200, 0},
    {"data_cut", 0, CUT, MINUS(100), 0},
    {"magic", "magic", TEXT, 0, "GGML"},
    {"version_0", "version", U32, 0, 0},
    {"version_1", "version", U32, 1, 0},
    {"version_max", "version", U32, UINT32_MAX, 0},
    {"tensors_2_63", "tensors", U64, (uint64_t)1 << 63, 0},
    {"tensors_max", "tensors", U64, UINT64_MAX, 0},
    {"tensors_plausible", "tensors", U64, 1000000000, 0},
    {"keys_max", "keys", U64, UINT64_MAX, 0},
    {"keys_plausible", "keys", U64, 1000000000, 0},
    {"key_length_max", "key:general.architecture:length", U64, UINT64_MAX, 0},
    {"key_length_0", "key:general.architecture:length", U64, 0, 0},
    {"key_zero_byte", "key:general.architecture:name", U8, 0, 0},
    {"value_type", "key:general.architecture:type", U32, 99, 0},
    {"string_length_max", "key:general.architecture:value", U64, UINT64_MAX, 0},
    {"string_length_2_63", "key:general.architecture:value", U64, (uint64_t)1 << 63, 0},
    {"array_count_wraps", "key:tokenizer.ggml.token_type:count", U64, ((uint64_t)1 << 62) + 1, 0},
    {"array_count_plausible", "key:tokenizer.ggml.tokens:count", U64, 1000000000, 0},
    {"array_of_arrays", "element:tokenizer.ggml.tokens", U32, 9, 0},
    {"blocks_max", "key:qwen3.block_count:value", U32, UINT32_MAX, 0},
    {"blocks_0", "key:qwen3.block_count:value", U32, 0, 0},
    {"width_0", "key:qwen3.embedding_length:value", U32, 0, 0},
    {"width_max", "key:qwen3.embedding_length:value", U32, UINT32_MAX, 0},
    {"heads_0", "key:qwen3.attention.head_count:value", U32, 0, 0},
    {"key_heads_0", "key:qwen3.attention.head_count_kv:value", U32, 0, 0},
    {"tensor_name_length", "tensor:0:length", U64, UINT64_MAX, 0},
    {"tensor_name_goes_up", "tensor:0:name", TEXT, 0, "../../"},
    {"dims_max", "tensor:0:dims", U32, UINT32_MAX, 0},
    {"dims_5", "tensor:0:dims", U32, 5, 0},
    {"size_0", "tensor:0:size0", U64, 0, 0},
    {"size_max", "tensor:0:size0", U64, UINT64_MAX, 0},
    {"product_wraps", "tensor:0:size1", U64, (uint64_t)1 << 61, 0},
    {"product_beyond_64_bits", "tensor:-1:size0", U64, ((uint64_t)1 << 62) - 256, 0},
    {"sum_wraps", "vector:last:size0", U64, ((uint64_t)1 << 62) - 64, 0},
    {"larger_than_file", "tensor:-1:size0", U64, (uint64_t)1 << 20, 0},
    {"tensor_type", "tensor:0:type", U32, 9999, 0},
    {"tensor_type_removed", "tensor:0:type", U32, 4, 0},
    {"offset_wraps", "tensor:-1:offset", U64, MINUS(32), 0},
    {"offset_beyond", "tensor:-1:offset", U64, (uint64_t)1 << 40, 0},
    {"offset_overlaps", "tensor:-1:offset", U64, 0, 0},
    {0},
};

/* Faults of the first tensor in the header, whose entry in the correct file is {"dtype":"F32","shape":[...],
 * "data_offsets":[...]} with any blanks. */
static const fault of_safetensors[] = {
    {"empty", 0, CUT, 0, 0},
    {"length_cut", 0, CUT, 7, 0},
    {"data_cut", 0, CUT, MINUS(100), 0},
    {"length_0", "length", U64, 0, 0},
    {"length_max", "length", U64, UINT64_MAX, 0},
    {"length_wraps", "length", U64, UINT64_MAX - 7, 0},
    {"length_2_63", "length", U64, ((uint64_t)1 << 63) - 1, 0},
    {"not_utf8", "header", TEXT, 0, "{\"\xff\xfe"},
    {"nested", 0, NESTED, 0, 0},
    {"array", 0, WHOLE, 0, "[]"},
    {"name_twice", 0, WHOLE, 0, "{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},"
                                "\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}"},
    {"product_wraps", "\"shape\"", HEADER, 0, "[4294967296,4294967296]"},
    {"size_max", "\"shape\"", HEADER, 0, "[18446744073709551615]"},
    {"size_negative", "\"shape\"", HEADER, 0, "[-1]"},
    {"dimensions_many", "\"shape\"", HEADER, 0, "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"},
    {"offsets_reversed", "\"data_offsets\"", HEADER, 0, "[256,0]"},
    {"offsets_beyond", "\"data_offsets\"", HEADER, 0, "[0,9223372036854775807]"},
    {"offsets_huge", "\"data_offsets\"", HEADER, 0, "[0,1e300]"},
    {"offsets_three", "\"data_offsets\"", HEADER, 0, "[0,1,2]"},
    {"dtype_number", "\"dtype\"", HEADER, 0, "7"},
    {"dtype_unknown", "\"dtype\"", HEADER, 0, "\"F33\""},
    {"name_goes_up", 0, WHOLE, 0, "{\"../../up\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}"},
    {0},
};

typedef struct arguments {
    const char *from, *output, *fault;
    bool list;
} arguments;

static const calm_option table[] = {
    {"from", "the good file, .gguf or .safetensors", offsetof(arguments, from), CALM_OPTION_STRING, .metavar = "FILE"},
    {"output", "the file to write", offsetof(arguments, output), CALM_OPTION_STRING, .metavar = "FILE"},
    {"fault", "one of --list", offsetof(arguments, fault), CALM_OPTION_STRING, .metavar = "NAME"},
    {"list", "name the faults of such a file", offsetof(arguments, list), CALM_OPTION_BOOL, .fallback = "false"},
    {0}};

/* ---- places of a GGUF file ---- */

/* State of reading the correct file; the walker checks only for its end. */
typedef struct walk {
    const char *bytes, *wanted;
    size_t n, at, found;    /* found: offset of the place; SIZE_MAX: not yet */
} walk;

static uint64_t number(walk *w, size_t n)
{
    uint64_t value = 0;
    if (w->at > w->n || n > w->n - w->at) {
        fprintf(stderr, "make_malformed: the good file ends early\n");
        exit(1);
    }
    memcpy(&value, w->bytes + w->at, n);    /* little-endian, like the machines of the tests */
    w->at += n;
    return value;
}

/* Records the current offset if the place is "KIND:NAME:PART". */
static void mark(walk *w, const char *kind, const char *name, size_t n_name, const char *part)
{
    char place[256];
    snprintf(place, sizeof place, "%s:%.*s%s%s", kind, (int)n_name, name, part[0] ? ":" : "", part);
    if (w->wanted && strcmp(place, w->wanted) == 0)
        w->found = w->at;
}

static void skip_value(walk *w, uint64_t type, const char *name, size_t n_name)
{
    static const size_t widths[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    mark(w, "key", name, n_name, "value");
    if (type == 8) {
        const uint64_t n = number(w, 8);
        w->at += (size_t)n;
    } else if (type == 9) {
        mark(w, "element", name, n_name, "");
        const uint64_t element = number(w, 4);
        mark(w, "key", name, n_name, "count");
        for (uint64_t n = number(w, 8); n > 0; n--)
            skip_value(w, element, "", 0);
    } else {
        number(w, widths[type]);
    }
}

static void walk_key(walk *w)
{
    const size_t begin = w->at, n = (size_t)number(w, 8);
    const char *name = w->bytes + w->at;
    w->at = begin;
    mark(w, "key", name, n, "length");
    w->at += 8;
    mark(w, "key", name, n, "name");
    w->at += n;
    mark(w, "key", name, n, "type");
    const uint64_t type = number(w, 4);
    skip_value(w, type, name, n);
}

/* `index` counts from the front, or below 0 from the end. */
static void walk_tensor(walk *w, long index)
{
    char name[24];
    const size_t n_name = (size_t)snprintf(name, sizeof name, "%ld", index);
    mark(w, "tensor", name, n_name, "length");
    const uint64_t length = number(w, 8);
    mark(w, "tensor", name, n_name, "name");
    w->at += (size_t)length;
    mark(w, "tensor", name, n_name, "dims");
    const uint64_t dims = number(w, 4);
    if (dims == 1)
        mark(w, "vector", "last", 4, "size0");
    for (uint64_t d = 0; d < dims; d++) {
        mark(w, "tensor", name, n_name, d ? "size1" : "size0");
        number(w, 8);
    }
    mark(w, "tensor", name, n_name, "type");
    number(w, 4);
    mark(w, "tensor", name, n_name, "offset");
    number(w, 8);
}

static size_t find_in_gguf(const char *bytes, size_t n, const char *place)
{
    static const char *const fixed[] = {"magic", "version", "tensors", "keys"};
    static const size_t at[] = {0, 4, 8, 16};
    walk w = {bytes, place, n, 8, SIZE_MAX};
    for (size_t i = 0; i < 4; i++)
        if (strcmp(place, fixed[i]) == 0)
            return at[i];
    const uint64_t n_tensors = number(&w, 8), n_keys = number(&w, 8);
    for (uint64_t i = 0; i < n_keys; i++)
        walk_key(&w);
    for (uint64_t i = 0; i < n_tensors; i++) {
        const size_t begin = w.at;
        walk_tensor(&w, (long)i);
        w.at = begin;
        walk_tensor(&w, (long)i - (long)n_tensors);
    }
    return w.found;
}

/* ---- what is done to a file ---- */

static void put_header(calm_text *out, const char *header, size_t n, const char *data, size_t n_data)
{
    const uint64_t length = n;
    calm_text_append(out, (const char *)&length, sizeof length);
    calm_text_append(out, header, n);
    calm_text_append(out, data, n_data);
}

/* Replaces the first value of the key `place` in the header, up to the ']' or ',' after it. */
static calm_status replace_value(calm_ctx *ctx, const char *bytes, size_t n, const fault *how, calm_text *out)
{
    CALM_SCOPED_TEXT(header);
    uint64_t length;
    memcpy(&length, bytes, sizeof length);
    const char *begin = bytes + 8, *end = begin + length;
    const char *at = memmem(begin, (size_t)length, how->place, strlen(how->place));
    if (!at)
        return calm_fail(ctx, CALM_EARG, "the good file has no %s", how->place);
    const char *value = at + strlen(how->place) + 1;
    const bool list = strcmp(how->place, "\"dtype\"") != 0;
    const char *stop = memchr(value, list ? ']' : ',', (size_t)(end - value));
    if (!stop)
        return calm_fail(ctx, CALM_EARG, "the good file has no value of %s", how->place);
    calm_text_append(&header, begin, (size_t)(value - begin));
    calm_text_printf(&header, "%s", how->text);
    calm_text_append(&header, stop + list, (size_t)(end - stop) - list);
    CALM_TRY(calm_text_check(ctx, &header));
    put_header(out, header.data, header.length, end, n - 8 - (size_t)length);
    return CALM_OK;
}

/* Writes the correct bytes with a patch at the place. */
static calm_status patch(calm_ctx *ctx, const char *bytes, size_t n, size_t at, const void *from, size_t n_patch,
                         calm_text *out)
{
    if (at > n || n_patch > n - at)
        return calm_fail(ctx, CALM_EARG, "the good file has no such place");
    calm_text_append(out, bytes, at);
    calm_text_append(out, from, n_patch);
    calm_text_append(out, bytes + at + n_patch, n - at - n_patch);
    return CALM_OK;
}

static calm_status apply(calm_ctx *ctx, const char *bytes, size_t n, bool gguf, const fault *how, calm_text *out)
{
    static const size_t widths[] = {[U8] = 1, [U32] = 4, [U64] = 8};
    CALM_SCOPED_TEXT(header);
    const bool placed = how->place && how->action != HEADER;
    const size_t at = !placed ? 0 : gguf ? find_in_gguf(bytes, n, how->place) : strcmp(how->place, "length") ? 8 : 0;
    switch (how->action) {
    case CUT:
        calm_text_append(out, bytes, how->value >> 63 ? n + (size_t)how->value : (size_t)how->value);
        return CALM_OK;
    case TEXT:
        return patch(ctx, bytes, n, at, how->text, strlen(how->text), out);
    case HEADER:
        return replace_value(ctx, bytes, n, how, out);
    case WHOLE:
        put_header(out, how->text, strlen(how->text), "", 0);
        return CALM_OK;
    case NESTED:
        calm_text_printf(&header, "{\"a\":");
        for (int i = 0; i < DEEP; i++)
            calm_text_append(&header, "[", 1);
        CALM_TRY(calm_text_check(ctx, &header));
        put_header(out, header.data, header.length, "", 0);
        return CALM_OK;
    default:
        return patch(ctx, bytes, n, at, &how->value, widths[how->action], out);
    }
}

static calm_status run(calm_ctx *ctx, void *user)
{
    const arguments *args = user;
    CALM_SCOPED_TEXT(made);
    char *bytes;
    size_t n;
    if (!args->from)
        return calm_fail(ctx, CALM_EARG, "--from is needed");
    const bool gguf = calm_text_ends_with(args->from, ".gguf");
    for (const fault *at = gguf ? of_gguf : of_safetensors; at->name; at++) {
        if (args->list)
            printf("%s\n", at->name);
        if (args->list || !args->fault || !args->output || strcmp(at->name, args->fault) != 0)
            continue;
        CALM_TRY(calm_read_file(ctx, args->from, FILE_MAX, &bytes, &n));
        CALM_TRY(apply(ctx, bytes, n, gguf, at, &made));
        CALM_TRY(calm_text_check(ctx, &made));
        return calm_write_file(ctx, args->output, made.data ? made.data : "", made.length);
    }
    return args->list ? CALM_OK : calm_fail(ctx, CALM_EARG, "--output and a --fault of --list are needed");
}

int main(int argc, char **argv)
{
    arguments args;
    return tool_main(&(tool){"make_malformed", "--from FILE --fault NAME --output FILE",
                             "Makes a file with one fault that its reader must not believe.", table, &args, run},
                     argc, argv);
}
