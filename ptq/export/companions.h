/* Companions: files that are copied unchanged with a checkpoint.
 *
 *   files of known names              tokenizer, generation_config.json, licence
 *   Python code                       the modules that auto_map and custom_pipelines of config.json and
 *                                     tokenizer_config.json name, and what these import from the same directory
 *   additional_chat_templates/NAME.jinja  chat templates other than the default one
 *
 * Names of modules come from the checkpoint, so a file outside its directory is not copied, neither by its name nor
 * through a symbolic link.  Snapshots of the hub's cache are an exception: their files are links to ../../blobs. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/base/option.h"
#include "ptq/tokenizer/template_files.h"

/* Lists the companions in `model_dir` (or the directory of a GGUF file), by their paths below it, in ctx->scratch.
 * `missing`, unless NULL, gets the Python classes whose module does not exist or is outside. */
calm_status calm_export_list_companions(calm_ctx *ctx, const char *model_dir, calm_words *out, calm_words *missing);

/* Adds the files additional_chat_templates/NAME.jinja, sorted, to `out`. */
calm_status calm_export_list_templates(calm_ctx *ctx, const char *model_dir, calm_words *out);

/* Copies the companions into `dir`, with their folders. */
calm_status calm_export_copy_companions(calm_ctx *ctx, const char *model_dir, const char *dir);
