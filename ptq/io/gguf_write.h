/* GGUF version 3, writing: keys, tensor table, then the data tensor by tensor, which is never held in memory.
 *
 * The same calls give the same bytes. */
#pragma once

#include <stdint.h>

#include "ptq/base/file.h"
#include "ptq/base/text.h"
#include "ptq/io/gguf.h"

/* Alignment of every tensor in bytes (the default of general.alignment). */
#define CALM_GGUF_ALIGNMENT 32

/* Serialised keys, in order. */
typedef struct calm_gguf_keys {
    calm_text bytes;
    size_t n;
} calm_gguf_keys;

/* calm_gguf_keys_init makes an empty list; calm_gguf_keys_clear frees its memory.  A failed allocation is stored
 * and reported by calm_gguf_begin. */
void calm_gguf_keys_init(calm_gguf_keys *keys);
void calm_gguf_keys_clear(calm_gguf_keys *keys);

/* Append a key.  The caller keeps names unique. */
void calm_gguf_add_u32(calm_gguf_keys *keys, const char *name, uint32_t value);
void calm_gguf_add_u16(calm_gguf_keys *keys, const char *name, uint16_t value);
void calm_gguf_add_i32(calm_gguf_keys *keys, const char *name, int32_t value);
void calm_gguf_add_f32(calm_gguf_keys *keys, const char *name, float value);
void calm_gguf_add_bool(calm_gguf_keys *keys, const char *name, bool value);
void calm_gguf_add_string(calm_gguf_keys *keys, const char *name, const char *text);

/* Appends a key with an array of `n` elements; the caller then appends all of them with the functions below. */
void calm_gguf_add_array(calm_gguf_keys *keys, const char *name, calm_gguf_kind kind, size_t n);
void calm_gguf_element_string(calm_gguf_keys *keys, const char *text, size_t n_bytes);
void calm_gguf_element_i32(calm_gguf_keys *keys, int32_t value);
void calm_gguf_element_f32(calm_gguf_keys *keys, float value);
void calm_gguf_element_bool(calm_gguf_keys *keys, bool value);

/* Appends a key with an array of bytes [n]. */
void calm_gguf_add_bytes(calm_gguf_keys *keys, const char *name, const void *bytes, size_t n);

typedef struct calm_gguf_writer {
    calm_writer file;
    const calm_gguf_tensor *tensors;    /* [n] name, type, n_dims, dims; borrowed */
    size_t n, next;
    size_t filled;                      /* bytes of tensor `next` that were written */
} calm_gguf_writer;

/* calm_gguf_sizes computes the bytes of a tensor's data with padding (0: its size is invalid), and of its row in
 * the tensor table; calm_gguf_head_bytes an upper bound of the bytes of the header, all keys and the padding before
 * the data. */
void calm_gguf_sizes(const calm_gguf_tensor *tensor, size_t *data, size_t *label);
size_t calm_gguf_head_bytes(const calm_gguf_keys *keys);

/* Writes header, keys and tensor table for `tensors` [n] (data, n_elements and bytes are not read) and the padding
 * before the data.  Call calm_gguf_end also after a failure.  CALM_EARG: a tensor's name is empty, longer than 63
 * bytes or not unique, or its size overflows or is not a whole number of blocks. */
calm_status calm_gguf_begin(calm_ctx *ctx, calm_gguf_writer *writer, const char *path, const calm_gguf_keys *keys,
                            const calm_gguf_tensor *tensors, size_t n);

/* Writes data of the next tensor, whole or in consecutive pieces, whose `bytes` must add up to its size (asserted). */
calm_status calm_gguf_put(calm_ctx *ctx, calm_gguf_writer *writer, const void *data, size_t bytes);

/* Flushes and closes the file; call it also after a failure.  All tensors must have been written (asserted if ctx
 * has no failure). */
calm_status calm_gguf_end(calm_ctx *ctx, calm_gguf_writer *writer);
