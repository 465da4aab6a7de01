/* GGUF: access to all keys, and sizes before writing.  Only files of this folder and tests include it. */
#pragma once

#include "ptq/io/gguf.h"

/* Keys in the order of the file. */
size_t calm_gguf_n_keys(const calm_gguf *file);
const calm_gguf_key *calm_gguf_key_at(const calm_gguf *file, size_t index);

/* Adds the tensors of `part` to `file`, which then owns `part`, also after a failure.  CALM_EFORMAT: a tensor that
 * both have. */
calm_status calm_gguf_adopt(calm_ctx *ctx, calm_gguf *file, calm_gguf *part);

/* Computes the bytes of a tensor from its type and dims; false if a row is not a whole number of blocks, or on
 * overflow. */
bool calm_gguf_tensor_bytes(const calm_gguf_tensor *tensor, size_t *bytes);
