/* Recipe files: by their path, or by the name of one that comes with calm. */
#pragma once

#include "ptq/recipe/document.h"

/* The file that a word means: a path, or the name of a shipped recipe (recipes/NAME.json).  In ctx->out.
 * CALM_ENOTFOUND, with the nearest shipped name. */
calm_status calm_recipe_file_find(calm_ctx *ctx, const char *word, char **path);

/* Names of the shipped recipes, sorted, in ctx->out.  CALM_EIO: the folder cannot be read. */
calm_status calm_recipe_file_shipped(calm_ctx *ctx, const char ***names, size_t *n);

/* Fill a spec from the file that a word means: calm_document_read, calm_spec_read. */
calm_status calm_recipe_file_apply(calm_ctx *ctx, const char *word, calm_recipe_spec *spec);
