/* Writes a model's architecture as keys of a GGUF file, and names what llama.cpp computes differently. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/io/gguf_write.h"
#include "ptq/model/model.h"

/* Checks that the keys of llama.cpp's architecture can express what the model computes.  CALM_EUNSUPPORTED, with the
 * reason: they cannot.  A difference only beyond a sliding window or a trained length is a warning in the log. */
calm_status calm_gguf_check_arch(calm_ctx *ctx, const calm_model *model);

/* Adds general.* and the architecture's keys for a file of `file_type` (a label; llama.cpp's enum). */
calm_status calm_gguf_add_arch(calm_ctx *ctx, const calm_model *model, uint32_t file_type, calm_gguf_keys *keys);
