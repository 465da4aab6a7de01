/* Wrappers: checkpoints whose text model is one of several parts, as in those that also read images.
 *
 * config.json of a wrapper has the text model's configuration under "text_config" (older Qwen-VL: at the top level),
 * and its tensors have a separate prefix.  calm reads and quantizes the text model; all other tensors stay as they
 * are. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/io/json.h"

/* *out = the configuration of the text model alone, in the spelling of that class; freed by the caller.  NULL: the
 * checkpoint is no wrapper, and `root` is that configuration.
 * CALM_EUNSUPPORTED: a wrapper that calm does not know, with its text model and whether calm knows that; a known one
 * around a text model that calm does not know.  CALM_EFORMAT: "text_config" is no object. */
calm_status calm_config_text(calm_ctx *ctx, const char *path, const calm_json *root, calm_json **out);
