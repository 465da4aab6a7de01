/* Recipe files: found by path, or by the name of a recipe that calm ships. */
#pragma once

#include "ptq/recipe/document.h"

/* Finds the file of a word: a path, or the name of a shipped recipe (recipes/NAME.json); in ctx->out.
 * CALM_ENOTFOUND: the message has the nearest shipped name. */
calm_status calm_recipe_file_find(calm_ctx *ctx, const char *word, char **path);

/* Lists the names of the shipped recipes, sorted, in ctx->out.  CALM_EIO: the folder cannot be read. */
calm_status calm_recipe_file_shipped(calm_ctx *ctx, const char ***names, size_t *n);

/* Reads the file of a word into a spec; fails as calm_document_read and calm_spec_read do. */
calm_status calm_recipe_file_apply(calm_ctx *ctx, const char *word, calm_recipe_spec *spec);
