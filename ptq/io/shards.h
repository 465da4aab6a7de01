/* safetensors in shards, writing: the tensors of a checkpoint in order, in files of limited size.
 *
 *   one file   model.safetensors
 *   several    model-00001-of-00003.safetensors, ... and model.safetensors.index.json:
 *              {"metadata": {"total_size": bytes of all tensors}, "weight_map": {tensor: file}}
 * A tensor larger than the limit has its own file.  calm_safetensors_open reads either. */
#pragma once

#include "ptq/io/safetensors.h"

/* Default for the bytes of tensors in a file: "5GB", as the field's libraries read it. */
#define CALM_SHARD_BYTES ((size_t)5000 * 1000 * 1000)

typedef struct calm_shards_writer {
    const calm_tensor *tensors;       /* [n] name, dtype, n_dims, shape; borrowed */
    size_t n, n_shards, shard;        /* shard: the one being written */
    size_t *begin;                    /* [n_shards + 1] first tensor of each */
    char **paths;                     /* [n_shards] */
    const char *dir;
    calm_safetensors_writer file;
    uint8_t *diverted;                /* where bytes go instead of the file; NULL: nowhere else */
} calm_shards_writer;

/* Open the first file in `dir` for tensors [n], with at most `limit` bytes of tensors in each (0: CALM_SHARD_BYTES).
 * What the writer owns is in ctx->out of this call.  CALM_EARG: a size overflows, or more than 99999 files. */
calm_status calm_shards_begin(calm_ctx *ctx, calm_shards_writer *writer, const char *dir, const calm_tensor *tensors,
                              size_t n, size_t limit);

/* Data of the next tensor, whole or in pieces, as calm_safetensors_put takes it. */
calm_status calm_shards_put(calm_ctx *ctx, calm_shards_writer *writer, const void *data, size_t bytes);

/* Write further bytes to `to`, one after another, instead of the file; NULL: to the file again.  For tensors whose
 * pieces are not computed in the file's order. */
void calm_shards_divert(calm_shards_writer *writer, uint8_t *to);

/* The tensor that the next bytes belong to. */
const calm_tensor *calm_shards_next(const calm_shards_writer *writer);

/* Close the last file and write the index; call it also after a failure. */
calm_status calm_shards_end(calm_ctx *ctx, calm_shards_writer *writer);
