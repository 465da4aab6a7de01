/* Loads matrices of a GGUF file as codes in memory, for text generation (row_linear.h). */
#pragma once

#include "ptq/io/safetensors.h"
#include "ptq/model/weight.h"

/* Where ctx->decode and the file of `set` has the tensor [out, in] in blocks whose values are codes times scales (Q4_0,
 * Q5_0, Q8_0, Q3_K, Q6_K), rows and columns in a checkpoint's order: pack it into `memory` [out, in] and set
 * weight->ints; the values are those of the float matrix.  Otherwise weight->ints is NULL, and the matrix is to be
 * read, as where a scale is not finite.  CALM_ENOMEM. */
calm_status calm_gguf_codes_take(calm_ctx *ctx, const calm_safetensors *set, const calm_tensor *tensor, float *memory,
                                 calm_weight *weight);
