/* Tensors of a checkpoint as the float32 copies that a model computes with. */
#pragma once

#include "ptq/io/safetensors.h"

/* out [elements of `tensor`] = its values, on ctx's threads; its pages of the mapped file go back to the system.
 * CALM_EFORMAT where it holds no floats, CALM_ENUMERIC for one that is not finite. */
calm_status calm_widen(calm_ctx *ctx, const calm_safetensors *tensors, const calm_tensor *tensor, float *out);
