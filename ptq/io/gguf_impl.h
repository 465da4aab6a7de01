/* GGUF: all keys, and sizes before writing.  Only files of this folder and tests include it. */
#pragma once

#include "ptq/io/gguf.h"

/* Keys in the order of the file. */
size_t calm_gguf_n_keys(const calm_gguf *file);
const calm_gguf_key *calm_gguf_key_at(const calm_gguf *file, size_t index);

/* Let `file` have the tensors of `part`, which it then owns, also after a failure.  CALM_EFORMAT: a tensor of both. */
calm_status calm_gguf_adopt(calm_ctx *ctx, calm_gguf *file, calm_gguf *part);

/* Bytes of a tensor from its type and dims; false when rows are no whole number of blocks, or on overflow. */
bool calm_gguf_tensor_bytes(const calm_gguf_tensor *tensor, size_t *bytes);
