/* Linears whose weights stay in memory as they are stored, for texts that grow token by token (ctx->decode): a product
 * with one row takes as long as its weight takes to be read, so that 4 bits are faster than 32.
 *
 * Floats of 32 bits and bfloat16 are those of the mapped file; codes of a weight whose input stays float, a head's and
 * those of GGUF's blocks (gguf_codes.h) too, are packed as for products of whole numbers (int_linear.h).  All else is
 * float32 in memory. */
#pragma once

#include "ptq/io/safetensors.h"
#include "ptq/model/weight.h"
#include "ptq/tensor/gemv.h"

/* Where ctx->decode and the tensor [out, in] is of float32 (at an address that four divides) or bfloat16 as it is in
 * the file: the weight is that tensor.  False: it is to be read. */
bool calm_row_linear_take(const calm_ctx *ctx, const calm_tensor *tensor, calm_weight *weight);

/* What such a linear, or any in memory, multiplies. */
calm_gemv_matrix calm_row_linear_matrix(const calm_weight *weight);

/* y [T, out] = x [T, in] W^T + bias on ctx's threads, x prepared: one row after the other where they are few, else
 * tile by tile of the weight in float32.  The bytes are the same for any number of threads. */
calm_status calm_row_linear_product(calm_ctx *ctx, const calm_weight *weight, const float *x, size_t n_tokens,
                                    float *y);
