/* GGUF version 3, writing: keys, tensor table, then the data tensor by tensor, none of it held in memory.
 *
 * The same calls give the same bytes. */
#pragma once

#include <stdint.h>

#include "ptq/base/file.h"
#include "ptq/base/text.h"
#include "ptq/io/gguf.h"

/* Every tensor is padded to this many bytes (the default of general.alignment). */
#define CALM_GGUF_ALIGNMENT 32

/* Keys on their way into a file, in order. */
typedef struct calm_gguf_keys {
    calm_text bytes;
    size_t n;
} calm_gguf_keys;

/* No keys; clear frees their memory.  Running out of memory is remembered and reported by calm_gguf_begin. */
void calm_gguf_keys_init(calm_gguf_keys *keys);
void calm_gguf_keys_clear(calm_gguf_keys *keys);

/* Append a key.  The caller keeps names unique. */
void calm_gguf_add_u32(calm_gguf_keys *keys, const char *name, uint32_t value);
void calm_gguf_add_u16(calm_gguf_keys *keys, const char *name, uint16_t value);
void calm_gguf_add_i32(calm_gguf_keys *keys, const char *name, int32_t value);
void calm_gguf_add_f32(calm_gguf_keys *keys, const char *name, float value);
void calm_gguf_add_bool(calm_gguf_keys *keys, const char *name, bool value);
void calm_gguf_add_string(calm_gguf_keys *keys, const char *name, const char *text);

/* Append a key that holds an array of `n` elements; the caller then appends all of them with the functions below. */
void calm_gguf_add_array(calm_gguf_keys *keys, const char *name, calm_gguf_kind kind, size_t n);
void calm_gguf_element_string(calm_gguf_keys *keys, const char *text, size_t n_bytes);
void calm_gguf_element_i32(calm_gguf_keys *keys, int32_t value);
void calm_gguf_element_f32(calm_gguf_keys *keys, float value);
void calm_gguf_element_bool(calm_gguf_keys *keys, bool value);

/* Append a key that holds an array of bytes [n], whole. */
void calm_gguf_add_bytes(calm_gguf_keys *keys, const char *name, const void *bytes, size_t n);

typedef struct calm_gguf_writer {
    calm_writer file;
    const calm_gguf_tensor *tensors;    /* [n] name, type, n_dims, dims; borrowed */
    size_t n, next;
    size_t filled;                      /* bytes of tensor `next` that were put */
} calm_gguf_writer;

/* Bytes of a tensor's data, padding included (0: its size cannot be), and of its row in the table; bytes of the head
 * and all keys with what aligns the data, at most. */
void calm_gguf_sizes(const calm_gguf_tensor *tensor, size_t *data, size_t *label);
size_t calm_gguf_head_bytes(const calm_gguf_keys *keys);

/* Write head, keys and table for `tensors` [n] (data, n_elements and bytes are not read) and the padding before the
 * data.  The file is to be ended also after a failure.  CALM_EARG: a tensor's name is empty, longer than 63 bytes or
 * there twice, or its size overflows or is no whole number of blocks. */
calm_status calm_gguf_begin(calm_ctx *ctx, calm_gguf_writer *writer, const char *path, const calm_gguf_keys *keys,
                            const calm_gguf_tensor *tensors, size_t n);

/* Data of the next tensor, whole or in pieces one after another: together `bytes` must be its size (asserted). */
calm_status calm_gguf_put(calm_ctx *ctx, calm_gguf_writer *writer, const void *data, size_t bytes);

/* Flush and close; call it also after a failure.  All tensors must have been put (asserted when ctx is well). */
calm_status calm_gguf_end(calm_ctx *ctx, calm_gguf_writer *writer);
