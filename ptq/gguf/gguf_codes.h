/* Loads matrices of a GGUF file as packed codes, for text generation (row_linear.h). */
#pragma once

#include "ptq/io/safetensors.h"
#include "ptq/weights/weight.h"

/* Packs the tensor [out, in] into `memory` [out, in] and sets weight->ints if ctx->decode is set, `set` is a GGUF file,
 * and the tensor's blocks hold codes times scales (Q4_0, Q5_0, Q8_0, Q3_K, Q6_K) with rows and columns in a
 * checkpoint's order; the values equal those of the float matrix.  Otherwise, also where a scale is not finite,
 * weight->ints is NULL and the caller must read the matrix.  CALM_ENOMEM. */
calm_status calm_gguf_codes_take(calm_ctx *ctx, const calm_safetensors *set, const calm_tensor *tensor, float *memory,
                                 calm_weight *weight);
