/* Element types of stored tensors, and conversions to and from float32. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "ptq/base/context.h"
#include "ptq/tensor/half.h"    /* one value at a time */

/* Return the name of a dtype in a safetensors header ("unknown" outside the list), and the bytes of one element. */
const char *calm_dtype_name(calm_dtype dtype);
size_t calm_dtype_bytes(calm_dtype dtype);

/* Finds a dtype by name; CALM_N_DTYPES when unknown. */
calm_dtype calm_dtype_find(const char *name);

/* Return the word for F32, F16 or BF16 in config.json ("bfloat16"; else NULL), and the dtype of such a word (else
 * CALM_N_DTYPES). */
const char *calm_dtype_word(calm_dtype dtype);
calm_dtype calm_dtype_of_word(const char *word);

/* Returns true for F64, F32, F16, BF16. */
bool calm_dtype_is_float(calm_dtype dtype);

/* Rounds a value to this type; F32 leaves it unchanged. */
float calm_dtype_round(calm_dtype dtype, float value);

/* Rounds `n` values in place. */
void calm_dtype_round_all(calm_dtype dtype, float *x, size_t n);

/* Converts `n` stored elements (F64, F32, F16, BF16; any alignment) to float32.  CALM_EUNSUPPORTED: another type. */
calm_status calm_to_f32(calm_ctx *ctx, calm_dtype dtype, const void *in, size_t n, float *out);

/* Converts `n` float32 values to F32, F16 or BF16.  CALM_EUNSUPPORTED: another type. */
calm_status calm_from_f32(calm_ctx *ctx, calm_dtype dtype, const float *in, size_t n, void *out);

/* Returns the index of the first value that is NaN or infinite, or n. */
size_t calm_find_nonfinite(const float *x, size_t n);
