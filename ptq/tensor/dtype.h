/* Element types of stored tensors, and conversions to and from float32. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "ptq/base/context.h"
#include "ptq/tensor/half.h"    /* one value at a time */

/* Name as in a safetensors header ("unknown" outside the list), and bytes of one element. */
const char *calm_dtype_name(calm_dtype dtype);
size_t calm_dtype_bytes(calm_dtype dtype);

/* Find by name; CALM_N_DTYPES when unknown. */
calm_dtype calm_dtype_find(const char *name);

/* How config.json writes F32, F16 or BF16, "bfloat16", and what it means; CALM_N_DTYPES: none of them. */
const char *calm_dtype_word(calm_dtype dtype);
calm_dtype calm_dtype_of_word(const char *word);

/* True for F64, F32, F16, BF16. */
bool calm_dtype_is_float(calm_dtype dtype);

/* The value that a tensor of this type holds for `value`: of F32 itself. */
float calm_dtype_round(calm_dtype dtype, float value);

/* The same of `n` values in place. */
void calm_dtype_round_all(calm_dtype dtype, float *x, size_t n);

/* `n` stored elements (F64, F32, F16, BF16; any alignment) to float32.  CALM_EUNSUPPORTED for others. */
calm_status calm_to_f32(calm_ctx *ctx, calm_dtype dtype, const void *in, size_t n, float *out);

/* `n` float32 values to F32, F16 or BF16.  CALM_EUNSUPPORTED for others. */
calm_status calm_from_f32(calm_ctx *ctx, calm_dtype dtype, const float *in, size_t n, void *out);

/* Index of the first value that is NaN or infinite, or n. */
size_t calm_find_nonfinite(const float *x, size_t n);
