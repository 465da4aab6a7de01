/* safetensors in shards, writing: the tensors of a checkpoint in order, in files of limited size.
 *
 *   one file   model.safetensors
 *   several    model-00001-of-00003.safetensors, ... and model.safetensors.index.json:
 *              {"metadata": {"total_size": bytes of all tensors}, "weight_map": {tensor: file}}
 *
 * A tensor larger than the limit gets a separate file.  calm_safetensors_open reads both forms. */
#pragma once

#include "ptq/io/safetensors.h"

/* Default limit of the tensors' bytes in a file: "5GB", as transformers and safetensors read it. */
#define CALM_SHARD_BYTES ((size_t)5000 * 1000 * 1000)

typedef struct calm_shards_writer {
    const calm_tensor *tensors;       /* [n] name, dtype, n_dims, shape; borrowed */
    size_t n, n_shards, shard;        /* shard: number of the file that is being written */
    size_t *begin;                    /* [n_shards + 1] first tensor of each file */
    char **paths;                     /* [n_shards] */
    const char *dir;
    calm_safetensors_writer file;
    uint8_t *diverted;                /* memory that receives the bytes instead of the file; NULL: the file does */
} calm_shards_writer;

/* Opens the first file in `dir` for tensors [n], with at most `limit` bytes of tensors per file (0:
 * CALM_SHARD_BYTES).  The writer's memory is in ctx->out of this call.  CALM_EARG: a size overflows, or more than
 * 99999 files. */
calm_status calm_shards_begin(calm_ctx *ctx, calm_shards_writer *writer, const char *dir, const calm_tensor *tensors,
                              size_t n, size_t limit);

/* Writes data of the next tensor, whole or in pieces, as calm_safetensors_put does. */
calm_status calm_shards_put(calm_ctx *ctx, calm_shards_writer *writer, const void *data, size_t bytes);

/* Writes further bytes to `to`, consecutively, instead of the file; NULL: to the file again.  For tensors whose
 * pieces are not computed in the file's order. */
void calm_shards_divert(calm_shards_writer *writer, uint8_t *to);

/* Returns the tensor that the next bytes belong to. */
const calm_tensor *calm_shards_next(const calm_shards_writer *writer);

/* Closes the last file and writes the index; call it also after a failure. */
calm_status calm_shards_end(calm_ctx *ctx, calm_shards_writer *writer);
