/* safetensors: named tensors in one file, or in shards with an index.
 *
 *   u64 N, little-endian | N bytes of JSON, "{" first, padded with spaces | data, to which offsets are relative
 *   {"name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [begin, end]}, "__metadata__": {"k": "v"}}
 *
 * Files are untrusted.  The header's length and every dtype, shape, product and offset are checked; tensors may
 * neither overlap nor leave gaps, and the last one must end where the file ends.  Files are mapped; tensors are
 * views. */
#pragma once

#include <stdint.h>

#include "ptq/base/context.h"
#include "ptq/base/file.h"
#include "ptq/base/scope.h"
#include "ptq/tensor/dtype.h"

#define CALM_MAX_DIMS 8

struct calm_tensor_source;
struct calm_sha256;

/* A tensor in a file, or to be written.  Row-major. */
typedef struct calm_tensor {
    const char *name;
    calm_dtype dtype;
    int n_dims;
    size_t shape[CALM_MAX_DIMS];
    const uint8_t *data;    /* borrowed from the mapping, any alignment */
    size_t bytes, n_elements;
    const char *file;       /* path of the shard, for messages */
    size_t shard;
    /* Converts `data` (blocks, or rows in another order) to elements; NULL: `data` are the elements. */
    const struct calm_tensor_source *source;
    const void *entry;      /* private data of the source */
    const uint8_t *scales;  /* [scale_bytes] further bytes that the source reads; NULL: none   */
    size_t scale_bytes;
    const struct calm_tensor *whole;    /* the stored tensor that this one is a part of; NULL: none  */
} calm_tensor;

/* Reader of the tensors of another file format. */
typedef struct calm_tensor_source {
    void *self;
    /* Converts elements first .. first + n - 1 of a tensor, whole rows of a matrix, to float32. */
    calm_status (*widen)(calm_ctx *ctx, const void *self, const calm_tensor *tensor, size_t first, size_t n,
                         float *out);
    /* Drops the pages of `bytes` of the tensor's data from `offset` on. */
    void (*release)(const void *self, const calm_tensor *tensor, size_t offset, size_t bytes);
    void (*close)(void *self);
    /* Feeds what determines the tensor's values to a digest; NULL: its data. */
    void (*hash)(const void *self, const calm_tensor *tensor, struct calm_sha256 *sha);
} calm_tensor_source;

typedef struct calm_safetensors calm_safetensors;

/* Opens a file, or a directory with model.safetensors or model.safetensors.index.json and its shards.
 * calm_safetensors_close releases all that the set owns.  As in transformers, model.safetensors has priority over
 * an index that does not name it.  If a shard or a tensor that the index names is missing, only
 * calm_safetensors_need fails.  If a tensor is in two shards, the copy that the index names counts, else the last
 * one.  CALM_ENOTFOUND: no such file, none of the shards, no tensor file in the directory.  CALM_EFORMAT: the
 * message names file, tensor, expected and found. */
calm_status calm_safetensors_open(calm_ctx *ctx, const char *path, calm_safetensors **out);
void calm_safetensors_close(calm_safetensors *set);

/* For scopes: `calm_safetensors *name = NULL` that is closed at their end. */
#define CALM_SCOPED_SAFETENSORS(name) CALM_SCOPED(calm_safetensors *, calm_safetensors_leave) name = NULL
static inline void calm_safetensors_leave(calm_safetensors **set)
{
    calm_safetensors_close(*set);
}

/* Logs a warning for each kind of difference between the index and the files.  For callers that have found all
 * tensors they need. */
void calm_safetensors_log_index(calm_ctx *ctx, const calm_safetensors *set);

/* Fails with CALM_ENOTFOUND if a file that the index names does not exist.  For callers that do not know which
 * tensors they need. */
calm_status calm_safetensors_need_files(calm_ctx *ctx, const calm_safetensors *set);

/* Makes a set of copies of `tensors` [n] of another format; their names live as long as the set.  Closing the set
 * closes `source`, and so does a failure.  CALM_EFORMAT: two tensors have the same name. */
calm_status calm_safetensors_of(calm_ctx *ctx, const calm_tensor *tensors, size_t n, const calm_tensor_source *source,
                                calm_safetensors **out);

/* Replaces the tensors of an open set by copies of `tensors` [n]: parts of the old ones under other names.  Names,
 * entries and sources live as long as the set.  Not allowed after calm_safetensors_hash.  CALM_EFORMAT: two tensors
 * have the same name. */
calm_status calm_safetensors_replace(calm_ctx *ctx, calm_safetensors *set, const calm_tensor *tensors, size_t n);

/* Faults in the files of a set. */
typedef enum calm_shard_fault {
    CALM_SHARD_HEADER,        /* header: its length, JSON, or an entry                                 */
    CALM_SHARD_DTYPE,         /* unknown dtype                                                         */
    CALM_SHARD_BOUNDS,        /* offsets beyond the end of the file, or not the size of dtype and shape */
    CALM_SHARD_OVERLAP,       /* two tensors share bytes                                               */
    CALM_SHARD_HOLE,          /* bytes that belong to no tensor                                        */
    CALM_SHARD_TWICE,         /* a tensor in two files                                                 */
    CALM_SHARD_INDEX,         /* malformed index                                                       */
    CALM_SHARD_MISSING,       /* a file that the index names does not exist                            */
    CALM_SHARD_PLACE,         /* a tensor is not in the file that the index names                      */
    CALM_SHARD_UNLISTED,      /* a tensor is in a file but not in the index                            */
    CALM_SHARD_TOTAL,         /* metadata.total_size is not the sum of all tensors' bytes              */
} calm_shard_fault;

/* Receives one fault: the tensor, or NULL, and the message that calm_safetensors_open would fail with. */
typedef void calm_shard_fault_fn(void *user, calm_shard_fault fault, const char *tensor, const char *text);

/* Opens all that can be read.  Each fault is passed to `report`, and its tensor or file is left out; of overlapping
 * tensors both stay, of two with the same name the first.  Only this function checks for CALM_SHARD_UNLISTED and
 * CALM_SHARD_TOTAL.  CALM_ENOTFOUND: no file at all.  CALM_ENOMEM. */
calm_status calm_safetensors_open_leniently(calm_ctx *ctx, const char *path, calm_shard_fault_fn *report, void *user,
                                            calm_safetensors **out);

/* Tensors of all files, sorted by name (strcmp). */
size_t calm_safetensors_count(const calm_safetensors *set);
const calm_tensor *calm_safetensors_at(const calm_safetensors *set, size_t index);

/* Finds a tensor by name; NULL when absent. */
const calm_tensor *calm_safetensors_find(const calm_safetensors *set, const char *name);

/* Finds a tensor and checks its shape; CALM_ENOTFOUND or CALM_EFORMAT with both shapes. */
calm_status calm_safetensors_need(calm_ctx *ctx, const calm_safetensors *set, const char *name, int n_dims,
                                  const size_t *shape, const calm_tensor **out);

/* Does the same for a float tensor: CALM_EFORMAT also if its dtype is not a float. */
calm_status calm_safetensors_need_floats(calm_ctx *ctx, const calm_safetensors *set, const char *name, int n_dims,
                                         const size_t *shape, const calm_tensor **out);

/* Computes the digests of all tensors, each over its own bytes only, so that shard and header do not matter.  Once
 * per set, in parallel over tensors; releases their pages.  No other thread may use the set meanwhile. */
calm_status calm_safetensors_hash(calm_ctx *ctx, const calm_safetensors *set);

/* Feeds the bytes that determine a tensor's values to a digest; releases their pages. */
void calm_safetensors_hash_tensor(const calm_safetensors *set, const calm_tensor *tensor, struct calm_sha256 *sha);

/* Returns the SHA-256 of a tensor of this set, after calm_safetensors_hash. */
const char *calm_safetensors_digest(const calm_safetensors *set, const calm_tensor *tensor);

/* Drops a tensor's pages from resident memory.  The next access reads them again. */
void calm_safetensors_release(const calm_safetensors *set, const calm_tensor *tensor);

/* Drops the pages of `bytes` of a tensor, from `offset` on. */
void calm_safetensors_release_part(const calm_safetensors *set, const calm_tensor *tensor, size_t offset, size_t bytes);

/* Converts a float tensor to out [n_elements].  CALM_ENUMERIC: a value is NaN or infinite, with tensor and index. */
calm_status calm_tensor_to_f32(calm_ctx *ctx, const calm_tensor *tensor, float *out);

/* Converts its elements first .. first + n - 1. */
calm_status calm_tensor_part_to_f32(calm_ctx *ctx, const calm_tensor *tensor, size_t first, size_t n, float *out);

/* Formats a shape as "[2, 3]" into `text`, which it returns. */
const char *calm_shape_text(int n_dims, const size_t *shape, char text[128]);

/* ---- writing ---- */

/* A file that is being written: first the header of all tensors, then their data in the same order. */
typedef struct calm_safetensors_writer {
    calm_writer file;
    const calm_tensor *tensors;    /* [n] name, dtype, n_dims, shape; borrowed */
    size_t n, next;
    size_t filled;                 /* bytes of tensor `next` that were written */
} calm_safetensors_writer;

/* Writes the header for `tensors` [n] (data and bytes are not read) with __metadata__ {"format": "pt"}. */
calm_status calm_safetensors_begin(calm_ctx *ctx, calm_safetensors_writer *writer, const char *path,
                                   const calm_tensor *tensors, size_t n);

/* Writes data of the next tensor, whole or in consecutive pieces, whose `bytes` must add up to the size of its
 * dtype and shape (asserted). */
calm_status calm_safetensors_put(calm_ctx *ctx, calm_safetensors_writer *writer, const void *data, size_t bytes);

/* Flushes and closes the file; call it also after a failure.  All tensors must have been written (asserted if ctx
 * has no failure). */
calm_status calm_safetensors_end(calm_ctx *ctx, calm_safetensors_writer *writer);

/* Computes an upper bound of the bytes of a header: for one tensor whose offsets are at most `most`; for `tensor`
 * NULL, what a file has in addition to its tensors and their entries, with padding. */
calm_status calm_safetensors_header_bytes(calm_ctx *ctx, const calm_tensor *tensor, size_t most, size_t *out);

/* Computes elements and bytes of a tensor from dtype and shape; false on overflow. */
bool calm_tensor_size(const calm_tensor *tensor, size_t *n_elements, size_t *bytes);
