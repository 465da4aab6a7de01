/* Named vectors: norms and biases of a block that differ from the float model's, and their blob in the store.
 *
 *   "CALMVEC1" | u64 count | count times u64 bytes of the name, values
 *   | names one after the other, each with a NUL, padded to 4 | f32 values one after the other
 *
 * All little-endian.  A name is the tensor's name in the checkpoint, values are those that the checkpoint stores. */
#pragma once

#include "ptq/base/context.h"

typedef struct calm_named_vector {
    const char *name;       /* "model.layers.0.input_layernorm.weight" */
    size_t n;
    const float *values;    /* [n] */
} calm_named_vector;

typedef struct calm_vectors {
    calm_named_vector *of;    /* [count], sorted by name */
    size_t count;
} calm_vectors;

/* Returns the vector with this name; NULL: there is none, or `vectors` is NULL. */
const calm_named_vector *calm_vectors_find(const calm_vectors *vectors, const char *name);

/* Encodes vectors as a blob in ctx->out. */
calm_status calm_vectors_encode(calm_ctx *ctx, const calm_vectors *vectors, void **bytes, size_t *n_bytes);

/* Decodes the vectors of a blob into ctx->out.  CALM_EFORMAT: impossible lengths, names or values; `name` appears
 * in the message. */
calm_status calm_vectors_decode(calm_ctx *ctx, const char *name, const void *bytes, size_t n_bytes, calm_vectors *out);
