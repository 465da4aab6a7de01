/* Fetches models, with progress and notes on stderr unless `quiet`. */
#pragma once

#include "ptq/hub/hub.h"
#include "ptq/recipe/model_names.h"

/* Calls calm_hub_pull with progress. */
calm_status calm_pull_shown(calm_ctx *ctx, const calm_hub_settings *settings, const calm_hub_name *name, bool quiet,
                            calm_hub_snapshot *out);

/* Calls calm_model_find with progress, for `--model NAME`.  If `name` is NULL, all members of *out are NULL. */
calm_status calm_find_shown(calm_ctx *ctx, const char *name, bool quiet, calm_named_model *out);

/* Finds the checkpoint that a word names: `word` itself if it is a path (calm_is_path) or ends in .gguf, and
 * model.gguf in a folder without safetensors (calm_folder_gguf); else the directory of the model of that name. */
calm_status calm_find_checkpoint(calm_ctx *ctx, const char *word, bool quiet, const char **path);
