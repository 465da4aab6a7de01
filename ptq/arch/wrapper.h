/* Wrappers: checkpoints whose text model is one of several parts, as in models that also read images.
 *
 * config.json of a wrapper has the text model's configuration under "text_config" (older Qwen-VL: at the top level),
 * and the text model's tensors have a separate prefix.  calm reads and quantizes the text model; all other tensors stay
 * as they are. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/io/json.h"

/* Makes the configuration of the text model as a plain checkpoint of its class has it; the caller frees it.  *out NULL:
 * the checkpoint is no wrapper, and `root` is that configuration.
 * CALM_EUNSUPPORTED: an unknown wrapper, with its text model and whether calm knows that; a known wrapper with an
 * unknown text model.  CALM_EFORMAT: "text_config" is no object. */
calm_status calm_config_text(calm_ctx *ctx, const char *path, const calm_json *root, calm_json **out);
