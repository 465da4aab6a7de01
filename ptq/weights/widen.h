/* Conversion of a checkpoint's tensors to float32. */
#pragma once

#include "ptq/io/safetensors.h"

/* Converts all elements of `tensor` to out, on ctx's threads, and releases its pages of the mapped file.
 * CALM_EFORMAT: it holds no floats.  CALM_ENUMERIC: an element is not finite. */
calm_status calm_widen(calm_ctx *ctx, const calm_safetensors *tensors, const calm_tensor *tensor, float *out);
