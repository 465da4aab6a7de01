/* Linears whose weights stay in memory as they are stored, for generation token by token (ctx->decode): a product with
 * one row takes the time of reading its weight, so 4 bits are faster than 32.
 *
 * float32 and bfloat16 weights stay in the mapped file.  Codes of a weight whose input stays float, also of a head or
 * of GGUF's blocks (gguf_codes.h), are packed as for integer products (int_linear.h).  Other weights are float32 in
 * memory. */
#pragma once

#include "ptq/io/safetensors.h"
#include "ptq/tensor/gemv.h"
#include "ptq/weights/weight.h"

/* Makes the weight refer to the mapped tensor [out, in] if ctx->decode is set and the tensor is float32 (4-byte
 * aligned) or bfloat16.  False: the caller must read it. */
bool calm_row_linear_take(const calm_ctx *ctx, const calm_tensor *tensor, calm_weight *weight);

/* Returns the matrix of such a linear, or of any in memory, as an operand of calm_gemv. */
calm_gemv_matrix calm_row_linear_matrix(const calm_weight *weight);

/* Computes y [T, out] = x [T, in] W^T + bias on ctx's threads, x already prepared: few rows one after the other, more
 * rows with the weight converted to float32 tile by tile.  The bytes are the same for any number of threads. */
calm_status calm_row_linear_product(calm_ctx *ctx, const calm_weight *weight, const float *x, size_t n_tokens,
                                    float *y);
