/* Shared by the reader of safetensors files and the reader of their index.  Only files of this folder include it. */
#pragma once

#include "ptq/base/sha256.h"
#include "ptq/io/json.h"
#include "ptq/io/safetensors.h"

/* Digests, computed on request.  A separate struct, so that a set that is only read can be const. */
typedef struct calm_tensor_digests {
    calm_arena arena;
    char (*of)[CALM_SHA256_HEX];    /* [n_tensors]; NULL: not computed */
} calm_tensor_digests;

typedef struct calm_shard {
    char *path;
    calm_mapping map;
    calm_json *header;    /* NULL: the file does not exist or cannot be read */
} calm_shard;

/* A tensor that the index names and no file has. */
typedef struct calm_absent {
    const char *name, *file;    /* as the index spells them                    */
    bool no_file;               /* the file does not exist                     */
} calm_absent;

/* Differences between the index and the files that no reader needs to fail for: reported as notes. */
typedef struct calm_index_gaps {
    const char *path;                              /* path of the index; NULL: there is none      */
    calm_absent *absent;                           /* [n_absent] sorted by name                   */
    size_t n_absent;
    size_t n_elsewhere, n_twice;                   /* tensors in another file than the index says; in two files */
    const char *elsewhere, *elsewhere_file;        /* first tensor in another file                */
    const char *twice, *twice_taken, *twice_last;  /* first tensor in two files; the file that counts, and the last
                                                    * one */
    bool passed_over;                              /* the index does not name model.safetensors, which exists */
} calm_index_gaps;

struct calm_safetensors {
    calm_arena arena;
    calm_shard *shards;           /* [n_shards] sorted by path */
    size_t n_shards;
    calm_tensor *tensors;         /* sorted by name */
    size_t n_tensors, capacity;
    calm_tensor_digests *digests;
    calm_tensor_source source;    /* reader of another format; all NULL: safetensors */
    calm_index_gaps gaps;
    calm_shard_fault_fn *report;  /* NULL: opening fails at the first fault */
    void *user;
    calm_shard_fault fault;       /* kind of fault of the check in progress, set before any call that can fail */
};

/* Reports a failure and clears it, if faults are reported; otherwise, and for CALM_ENOMEM, returns it.  *bad (may
 * be NULL): there was a failure. */
calm_status calm_safetensors_survive(calm_ctx *ctx, const calm_safetensors *set, const char *tensor, calm_status status,
                                     bool *bad);

/* Fails with CALM_ENOTFOUND for a tensor that is in no file; the message says where the index expects it. */
calm_status calm_safetensors_missing(calm_ctx *ctx, const calm_safetensors *set, const char *name, int n_dims,
                                     const size_t *shape);

/* Makes the distinct files of a weight_map, sorted, the shards of the set.  CALM_EFORMAT: it is not a weight_map. */
calm_status calm_shard_index_list(calm_ctx *ctx, calm_safetensors *set, const char *dir, const char *index_path,
                                  const calm_json *map);

/* Returns whether the map names this file. */
bool calm_shard_index_names(const calm_json *map, const char *file);

/* Compares the index with the tensors, which are sorted: a tensor that is in no file, or in another than the index
 * says, goes into set->gaps.  If faults are reported, each of these is one, and so are tensors that the index lacks
 * and a wrong total size. */
calm_status calm_shard_index_check(calm_ctx *ctx, calm_safetensors *set, const char *index_path,
                                   const calm_json *index);
