/* rope_freqs.weight of a GGUF file: divisors of the angles of the rotary embedding.
 *
 * Source: llama.cpp's convert_hf_to_gguf.py (LlamaModel and Gemma4Model.generate_extra_tensors). */
#pragma once

#include "ptq/model/model.h"

/* Does the model need rope_freqs.weight?  Compute its divisors [rotary / 2], those of the global layers, in ctx->out.
 * */
bool calm_gguf_has_rope_factors(const calm_model *model);
calm_status calm_gguf_rope_factors(calm_ctx *ctx, const calm_model *model, float **out);
