/* Inside of a set of safetensors files: what the reader of files and the reader of their index share.  Only files of
 * this folder include it. */
#pragma once

#include "ptq/base/sha256.h"
#include "ptq/io/json.h"
#include "ptq/io/safetensors.h"

/* Made when they are asked for, so that a set that is only read is const all the same. */
typedef struct calm_tensor_digests {
    calm_arena arena;
    char (*of)[CALM_SHA256_HEX];    /* [n_tensors]; NULL: not yet */
} calm_tensor_digests;

typedef struct calm_shard {
    char *path;
    calm_mapping map;
    calm_json *header;    /* NULL: the file is not there, or cannot be read */
} calm_shard;

/* A tensor that the index names and no file has. */
typedef struct calm_absent {
    const char *name, *file;    /* as the index spells them                    */
    bool no_file;               /* the file itself is not there                */
} calm_absent;

/* What the index says and the files do not, where no reader needs to fail: for notes. */
typedef struct calm_index_gaps {
    const char *path;                              /* of the index; NULL: there is none           */
    calm_absent *absent;                           /* [n_absent] sorted by name                   */
    size_t n_absent;
    size_t n_elsewhere, n_twice;                   /* in another file than it says; in two files  */
    const char *elsewhere, *elsewhere_file;        /* the first of them                           */
    const char *twice, *twice_taken, *twice_last;  /* the first; the file that counts, and the last one */
    bool passed_over;                              /* model.safetensors is there, which it does not name */
} calm_index_gaps;

struct calm_safetensors {
    calm_arena arena;
    calm_shard *shards;           /* [n_shards] sorted by path */
    size_t n_shards;
    calm_tensor *tensors;         /* sorted by name */
    size_t n_tensors, capacity;
    calm_tensor_digests *digests;
    calm_tensor_source source;    /* of another format; all NULL: files of this one */
    calm_index_gaps gaps;
    calm_shard_fault_fn *report;  /* NULL: the first fault ends the opening */
    void *user;
    calm_shard_fault fault;       /* of the check in progress: set before whatever may fail */
};

/* Report a failure and forgive it, where faults are reported; without memory nothing can be reported.  *bad (may be
 * NULL): there was a failure. */
calm_status calm_safetensors_survive(calm_ctx *ctx, const calm_safetensors *set, const char *tensor, calm_status status,
                                     bool *bad);

/* Fail with CALM_ENOTFOUND for a tensor that is in no file, and say where the index believes it to be. */
calm_status calm_safetensors_missing(calm_ctx *ctx, const calm_safetensors *set, const char *name, int n_dims,
                                     const size_t *shape);

/* The distinct files of a weight_map, sorted, as shards of the set.  CALM_EFORMAT: it is none. */
calm_status calm_shard_index_list(calm_ctx *ctx, calm_safetensors *set, const char *dir, const char *index_path,
                                  const calm_json *map);

/* Does the map name this file? */
bool calm_shard_index_names(const calm_json *map, const char *file);

/* Compare the index with the tensors, which are sorted: what no file has, or another than it says, goes into set->gaps.
 * Where faults are reported each is one, and so are tensors that the index lacks and a wrong total. */
calm_status calm_shard_index_check(calm_ctx *ctx, calm_safetensors *set, const char *index_path,
                                   const calm_json *index);
