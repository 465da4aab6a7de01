/* safetensors: named tensors in one file, or in shards with an index.
 *
 *   u64 N, little-endian | N bytes of JSON, "{" first, padded with spaces | data, offsets count from here
 *   {"name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [begin, end]}, "__metadata__": {"k": "v"}}
 *
 * Files are untrusted.  The header's length and every dtype, shape, product and offset are checked; tensors may neither
 * overlap nor leave holes, and the last one must end where the file ends.  Files are mapped; tensors are views. */
#pragma once

#include <stdint.h>

#include "ptq/base/context.h"
#include "ptq/base/file.h"
#include "ptq/base/scope.h"
#include "ptq/tensor/dtype.h"

#define CALM_MAX_DIMS 8

struct calm_tensor_source;
struct calm_sha256;

/* A tensor as it is in a file, or is to be written.  Row-major. */
typedef struct calm_tensor {
    const char *name;
    calm_dtype dtype;
    int n_dims;
    size_t shape[CALM_MAX_DIMS];
    const uint8_t *data;    /* borrowed from the mapping, any alignment */
    size_t bytes, n_elements;
    const char *file;       /* path of the shard, for messages */
    size_t shard;
    /* NULL: `data` are the elements.  Else they are what this widens: blocks, or rows in another order. */
    const struct calm_tensor_source *source;
    const void *entry;      /* the source's own */
    const uint8_t *scales;  /* [scale_bytes] bytes that a source reads with `data`; NULL: none */
    size_t scale_bytes;
    const struct calm_tensor *whole;    /* the tensor of the file that this is a part of; NULL: none */
} calm_tensor;

/* Where the tensors of another file format come from. */
typedef struct calm_tensor_source {
    void *self;
    /* Elements first .. first + n - 1 of a tensor, whole rows of a matrix. */
    calm_status (*widen)(calm_ctx *ctx, const void *self, const calm_tensor *tensor, size_t first, size_t n,
                         float *out);
    /* Drop pages of `bytes` of its data from `offset` on. */
    void (*release)(const void *self, const calm_tensor *tensor, size_t offset, size_t bytes);
    void (*close)(void *self);
    /* What decides the tensor's values goes into a digest; NULL: its data. */
    void (*hash)(const void *self, const calm_tensor *tensor, struct calm_sha256 *sha);
} calm_tensor_source;

typedef struct calm_safetensors calm_safetensors;

/* Open a file, or a directory with model.safetensors or model.safetensors.index.json and its shards.  Close releases
 * all that the set owns.  As in transformers model.safetensors counts where it is there and an index that does not name
 * it.  A shard or a tensor that the index names and that is absent is a failure of calm_safetensors_need alone.  Of a
 * tensor in two shards the copy that the index names is taken, else the last.
 * CALM_ENOTFOUND: no such file, none of the shards, no tensor file in the directory.  CALM_EFORMAT: file, tensor,
 * expected, found. */
calm_status calm_safetensors_open(calm_ctx *ctx, const char *path, calm_safetensors **out);
void calm_safetensors_close(calm_safetensors *set);

/* For scopes: `calm_safetensors *name = NULL` that is closed at their end. */
#define CALM_SCOPED_SAFETENSORS(name) CALM_SCOPED(calm_safetensors *, calm_safetensors_leave) name = NULL
static inline void calm_safetensors_leave(calm_safetensors **set)
{
    calm_safetensors_close(*set);
}

/* Log a warning for each way in which the index and the files differ.  For callers that have found all they need. */
void calm_safetensors_log_index(calm_ctx *ctx, const calm_safetensors *set);

/* CALM_ENOTFOUND: a file that the index names is not there.  For callers that do not know what they need. */
calm_status calm_safetensors_need_files(calm_ctx *ctx, const calm_safetensors *set);

/* A set of tensors [n] of another format, which are copied; their names live as long as the set.  Closing the set
 * closes `source`, and so does a failure.  CALM_EFORMAT: two of one name. */
calm_status calm_safetensors_of(calm_ctx *ctx, const calm_tensor *tensors, size_t n, const calm_tensor_source *source,
                                calm_safetensors **out);

/* Put tensors [n], which are copied, in place of those of an open set: parts of them under other names.  Names, entries
 * and sources live as long as the set.  Not after calm_safetensors_hash.  CALM_EFORMAT: two of one name. */
calm_status calm_safetensors_replace(calm_ctx *ctx, calm_safetensors *set, const calm_tensor *tensors, size_t n);

/* Faults of the files of a set. */
typedef enum calm_shard_fault {
    CALM_SHARD_HEADER,        /* length, JSON, or an entry of it                                       */
    CALM_SHARD_DTYPE,         /* a dtype that is not known                                             */
    CALM_SHARD_BOUNDS,        /* offsets past the end of the file, or not what dtype and shape span    */
    CALM_SHARD_OVERLAP,       /* two tensors on the same bytes                                         */
    CALM_SHARD_HOLE,          /* bytes of no tensor                                                    */
    CALM_SHARD_TWICE,         /* a tensor in two files                                                 */
    CALM_SHARD_INDEX,         /* the index itself                                                      */
    CALM_SHARD_MISSING,       /* a file of the index is not there                                      */
    CALM_SHARD_PLACE,         /* a tensor is not in the file that the index says                       */
    CALM_SHARD_UNLISTED,      /* a tensor is in a file but not in the index                            */
    CALM_SHARD_TOTAL,         /* metadata.total_size is not the bytes of all tensors                   */
} calm_shard_fault;

/* Callback for one fault: the tensor, or NULL, and the message that calm_safetensors_open would fail with. */
typedef void calm_shard_fault_fn(void *user, calm_shard_fault fault, const char *tensor, const char *text);

/* Open all that can be read.  Each fault is passed to `report`, and its tensor or file is left out; of overlapping
 * tensors both stay, of two with one name the first.  Only this function checks for CALM_SHARD_UNLISTED and
 * CALM_SHARD_TOTAL. CALM_ENOTFOUND: no file at all.  CALM_ENOMEM. */
calm_status calm_safetensors_open_leniently(calm_ctx *ctx, const char *path, calm_shard_fault_fn *report, void *user,
                                            calm_safetensors **out);

/* All tensors of all files, sorted by name (strcmp). */
size_t calm_safetensors_count(const calm_safetensors *set);
const calm_tensor *calm_safetensors_at(const calm_safetensors *set, size_t index);

/* NULL when absent. */
const calm_tensor *calm_safetensors_find(const calm_safetensors *set, const char *name);

/* Find a tensor and check its shape; CALM_ENOTFOUND or CALM_EFORMAT with both shapes. */
calm_status calm_safetensors_need(calm_ctx *ctx, const calm_safetensors *set, const char *name, int n_dims,
                                  const size_t *shape, const calm_tensor **out);

/* The same for a float tensor: CALM_EFORMAT also for a dtype that is not a float. */
calm_status calm_safetensors_need_floats(calm_ctx *ctx, const calm_safetensors *set, const char *name, int n_dims,
                                         const size_t *shape, const calm_tensor **out);

/* Make the digests of all tensors, each over its bytes alone: the same whatever shard or header the tensor is in.
 * Made once for a set, in parallel over tensors, whose pages are released.  Not while another thread uses the set. */
calm_status calm_safetensors_hash(calm_ctx *ctx, const calm_safetensors *set);

/* The bytes that decide a tensor's values into a digest; their pages are released. */
void calm_safetensors_hash_tensor(const calm_safetensors *set, const calm_tensor *tensor, struct calm_sha256 *sha);

/* SHA-256 of a tensor of this set, whose digests have been made. */
const char *calm_safetensors_digest(const calm_safetensors *set, const calm_tensor *tensor);

/* Drop a tensor's pages from resident memory.  They are read again on access. */
void calm_safetensors_release(const calm_safetensors *set, const calm_tensor *tensor);

/* The same for `bytes` of it from `offset` on. */
void calm_safetensors_release_part(const calm_safetensors *set, const calm_tensor *tensor, size_t offset, size_t bytes);

/* Widen a float tensor into out [n_elements].  CALM_ENUMERIC when a value is NaN or infinite, with tensor and index. */
calm_status calm_tensor_to_f32(calm_ctx *ctx, const calm_tensor *tensor, float *out);

/* The same for its elements first .. first + n - 1. */
calm_status calm_tensor_part_to_f32(calm_ctx *ctx, const calm_tensor *tensor, size_t first, size_t n, float *out);

/* "[2, 3]" into `text`; returns it. */
const char *calm_shape_text(int n_dims, const size_t *shape, char text[128]);

/* ---- writing ---- */

/* A file being written: first the header of all tensors, then their data in the same order. */
typedef struct calm_safetensors_writer {
    calm_writer file;
    const calm_tensor *tensors;    /* [n] name, dtype, n_dims, shape; borrowed */
    size_t n, next;
    size_t filled;                 /* bytes of tensor `next` that were put */
} calm_safetensors_writer;

/* Write the header for `tensors` [n] (data and bytes are not read) with __metadata__ {"format": "pt"}. */
calm_status calm_safetensors_begin(calm_ctx *ctx, calm_safetensors_writer *writer, const char *path,
                                   const calm_tensor *tensors, size_t n);

/* Data of the next tensor, whole or in pieces one after another: together `bytes` must be what its dtype and shape
 * say (asserted). */
calm_status calm_safetensors_put(calm_ctx *ctx, calm_safetensors_writer *writer, const void *data, size_t bytes);

/* Flush and close; call it also after a failure.  All tensors must have been put (asserted when ctx is well). */
calm_status calm_safetensors_end(calm_ctx *ctx, calm_safetensors_writer *writer);

/* Bytes that a header takes for a tensor whose offsets are at most `most`; `tensor` NULL: that a file takes next to
 * tensors and these, padding included, at most. */
calm_status calm_safetensors_header_bytes(calm_ctx *ctx, const calm_tensor *tensor, size_t most, size_t *out);

/* Bytes of a tensor from dtype and shape; false on overflow. */
bool calm_tensor_size(const calm_tensor *tensor, size_t *n_elements, size_t *bytes);
