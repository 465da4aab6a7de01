/* Fetching models with progress and notes on stderr; none when `quiet`. */
#pragma once

#include "ptq/hub/hub.h"
#include "ptq/recipe/model_names.h"

/* calm_hub_pull with progress. */
calm_status calm_pull_shown(calm_ctx *ctx, const calm_hub_settings *settings, const calm_hub_name *name, bool quiet,
                            calm_hub_snapshot *out);

/* calm_model_find with progress, for `--model NAME`; of no name (NULL) all members are NULL. */
calm_status calm_find_shown(calm_ctx *ctx, const char *name, bool quiet, calm_named_model *out);

/* For commands that are given a directory or a file: the path where there is something or `word` is certainly a path or
 * ends in .gguf, else the directory of the model of that name. */
calm_status calm_find_checkpoint(calm_ctx *ctx, const char *word, bool quiet, const char **path);
