/* Named vectors: norms and biases of a block that are not the float model's, and how a blob of the store holds them.
 *
 *   "CALMVEC1" | u64 count | count times u64 bytes of the name, values
 *   | names one after the other, each with a NUL, padded to 4 | f32 values one after the other
 * All little-endian.  A name is the tensor's in the checkpoint, values are what the checkpoint stores. */
#pragma once

#include "ptq/base/context.h"

typedef struct calm_named_vector {
    const char *name;       /* "model.layers.0.input_layernorm.weight" */
    size_t n;
    const float *values;    /* [n] */
} calm_named_vector;

typedef struct calm_vectors {
    calm_named_vector *of;    /* [count], by name */
    size_t count;
} calm_vectors;

/* The vector of this name; NULL: there is none, or no vectors. */
const calm_named_vector *calm_vectors_find(const calm_vectors *vectors, const char *name);

/* Bytes of a blob in ctx->out. */
calm_status calm_vectors_encode(calm_ctx *ctx, const calm_vectors *vectors, void **bytes, size_t *n_bytes);

/* The vectors of a blob, copied into ctx->out.  CALM_EFORMAT when lengths, names or values are not possible; `name`
 * stands in the message. */
calm_status calm_vectors_decode(calm_ctx *ctx, const char *name, const void *bytes, size_t n_bytes, calm_vectors *out);
