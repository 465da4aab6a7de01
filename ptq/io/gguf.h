/* GGUF: llama.cpp's files - keys with values, then named tensors (docs/formats.md section 6).
 *
 *   "GGUF" | u32 version 2 or 3 | u64 tensors | u64 keys | keys | tensor table | padding | data
 *   key     u64 length, name | u32 type | value;  an array is u32 type of its elements, u64 how many, elements
 *   tensor  u64 length, name | u32 dimensions | u64 sizes, the fastest first | u32 type | u64 offset in the data
 *
 * Little-endian.  Files are untrusted.  Every count, length, type, size, product and offset is checked before use.
 * Names are unique; tensors lie one after the other in the order of the table, each padded to the alignment, and end
 * within the file, as llama.cpp demands.  Allocations are proportional to the size of the file.  Files are mapped;
 * values and tensors are views. */
#pragma once

#include <stdint.h>

#include "ptq/base/context.h"
#include "ptq/io/ggml_type.h"

#define CALM_GGUF_MAGIC "GGUF"    /* what a file begins with */
#define CALM_GGUF_MAX_DIMS 4
#define CALM_GGUF_NAME_MAX 63    /* bytes of a tensor's name */

/* Types of values; numbers as in files. */
typedef enum calm_gguf_kind {
    CALM_GGUF_U8,
    CALM_GGUF_I8,
    CALM_GGUF_U16,
    CALM_GGUF_I16,
    CALM_GGUF_U32,
    CALM_GGUF_I32,
    CALM_GGUF_F32,
    CALM_GGUF_BOOL,
    CALM_GGUF_STRING,
    CALM_GGUF_ARRAY,
    CALM_GGUF_U64,
    CALM_GGUF_I64,
    CALM_GGUF_F64,
    CALM_GGUF_N_KINDS
} calm_gguf_kind;

typedef struct calm_gguf_key {
    const char *name;
    calm_gguf_kind kind;     /* of the value, or of an array's elements    */
    bool array;
    size_t n;                /* elements; 1 for a single value */
    const uint8_t *data;     /* first element as stored in the file, any alignment    */
    size_t bytes;            /* of all elements */
} calm_gguf_key;

typedef struct calm_gguf_tensor {
    const char *name;
    calm_ggml_type type;
    int n_dims;
    size_t dims[CALM_GGUF_MAX_DIMS];    /* fastest-varying dimension first; 1 beyond n_dims */
    const uint8_t *data;                /* borrowed from the mapping */
    size_t n_elements, bytes;
} calm_gguf_tensor;

typedef struct calm_gguf calm_gguf;

/* Opens a file; calm_gguf_close releases all that it owns.  CALM_ENOTFOUND, CALM_EIO; CALM_EFORMAT: the message
 * names file, key or tensor, expected and found; CALM_EUNSUPPORTED: another version or byte order, an unknown
 * tensor type, an array of arrays. */
calm_status calm_gguf_open(calm_ctx *ctx, const char *path, calm_gguf **out);
void calm_gguf_close(calm_gguf *file);

/* Returns the path that the file was opened with. */
const char *calm_gguf_path(const calm_gguf *file);

/* Tensors in the order of the file. */
size_t calm_gguf_n_tensors(const calm_gguf *file);
const calm_gguf_tensor *calm_gguf_tensor_at(const calm_gguf *file, size_t index);

/* Find a key or a tensor by name; NULL when absent. */
const calm_gguf_key *calm_gguf_find_key(const calm_gguf *file, const char *name);
const calm_gguf_tensor *calm_gguf_find_tensor(const calm_gguf *file, const char *name);

/* Returns the bytes behind the padding of the last tensor, which llama.cpp ignores. */
size_t calm_gguf_spare(const calm_gguf *file);

/* ---- values ---- */

/* Read element `index` of a key: an integer of any kind that fits int64; a number of any kind.  False when `key` is
 * NULL, has another kind, or has fewer elements. */
bool calm_gguf_int(const calm_gguf_key *key, size_t index, int64_t *out);
bool calm_gguf_number(const calm_gguf_key *key, size_t index, double *out);

/* Reads the next string of a key: starts with *at = 0; false at the end, and for other kinds.  `text` [*n] is
 * borrowed from the file, may contain any bytes, and is not NUL-terminated. */
bool calm_gguf_next_string(const calm_gguf_key *key, size_t *at, const char **text, size_t *n);

/* Returns whether the value of `key` is this one string. */
bool calm_gguf_is(const calm_gguf_key *key, const char *text);

/* ---- tensors ---- */

/* Dequantizes rows first .. first + n - 1 to out [n, dims[0]]; a tensor has dims[1] dims[2] ... rows.
 * CALM_EUNSUPPORTED: the type is not readable.  CALM_ENUMERIC: a value is NaN or infinite, with tensor and index. */
calm_status calm_gguf_to_f32(calm_ctx *ctx, const calm_gguf *file, const calm_gguf_tensor *tensor, size_t first,
                             size_t n, float *out);

/* Drops `bytes` of a tensor's pages, from byte `offset` on, from resident memory.  The next access reads them
 * again. */
void calm_gguf_release_part(const calm_gguf *file, const calm_gguf_tensor *tensor, size_t offset, size_t bytes);
