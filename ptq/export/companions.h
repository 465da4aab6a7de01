/* Companions: the files that go with a checkpoint unchanged.
 *
 *   of known names                     tokenizer, generation_config.json, licence
 *   Python code                       the modules that auto_map and custom_pipelines of config.json and
 *                                     tokenizer_config.json name, and what these import from the same directory
 *   additional_chat_templates/NAME.jinja  chat templates besides the default one
 *
 * Names of modules come from the checkpoint: a file outside of its directory is not copied, neither by its name nor
 * through a symbolic link.  Snapshots of the hub's cache are an exception: their files are links to ../../blobs. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/base/option.h"
#include "ptq/tokenizer/template_files.h"

/* Names of those that `model_dir` (or the directory of a GGUF file) has, below it, in ctx->scratch.  `missing` gets
 * the Python classes whose module is not there, or is outside; it may be NULL. */
calm_status calm_export_list_companions(calm_ctx *ctx, const char *model_dir, calm_words *out, calm_words *missing);

/* Names of the files NAME.jinja in additional_chat_templates, sorted, with that folder in front, added to `out`. */
calm_status calm_export_list_templates(calm_ctx *ctx, const char *model_dir, calm_words *out);

/* Copy them into `dir`, with the folders that they are in. */
calm_status calm_export_copy_companions(calm_ctx *ctx, const char *model_dir, const char *dir);
