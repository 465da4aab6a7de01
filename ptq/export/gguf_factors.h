/* rope_freqs.weight of a GGUF file: the factors by which the angles of the rotary embedding are divided.
 *
 * Source: llama.cpp's convert_hf_to_gguf.py (LlamaModel and Gemma4Model.generate_extra_tensors). */
#pragma once

#include "ptq/model/model.h"

/* Are rope_freqs.weight's factors needed, and those [rotary / 2] of the global embedding into ctx->out: the angles are
 * divided by them. */
bool calm_gguf_has_rope_factors(const calm_model *model);
calm_status calm_gguf_rope_factors(calm_ctx *ctx, const calm_model *model, float **out);
