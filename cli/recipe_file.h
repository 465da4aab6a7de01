/* Recipe files: the JSON documents of recipes/recipe.schema.json, and the options they stand for.
 *
 * One table (recipe_file.c) says which place of the document is which option of `calm quantize`; reading and writing both
 * go through it, and every value through calm_option_set, so a recipe and a command line cannot mean different things.
 * Paths in a recipe are relative to the working folder, as on the command line. */
#ifndef CALM_CLI_RECIPE_FILE_H
#define CALM_CLI_RECIPE_FILE_H

#include "cli/quantize_options.h"
#include "ptq/io/json.h"

/* What "calm_recipe" must be. */
#define CALM_RECIPE_VERSION 1

/* Larger files are no recipes. */
#define CALM_RECIPE_BYTES ((size_t)1 << 20)

/* The file that a word means: a path, or the name of a shipped recipe (recipes/NAME.json).  In ctx->out.
 * CALM_ENOTFOUND, with the nearest shipped name. */
calm_status calm_recipe_file_find(calm_ctx *ctx, const char *word, char **path);

/* Names of the shipped recipes, sorted, in ctx->out.  CALM_EIO: the folder cannot be read. */
calm_status calm_recipe_file_shipped(calm_ctx *ctx, const char ***names, size_t *n);

/* The schema, recipes/recipe.schema.json as it was when the program was built.  Freed by the caller. */
calm_status calm_recipe_schema_read(calm_ctx *ctx, calm_json **out);

/* Read a document and compare it with the schema.  Freed by the caller.
 * CALM_EFORMAT: not JSON, or not a recipe; the message has the file and the JSON pointer of the fault, and for an unknown
 * key the nearest known one. */
calm_status calm_recipe_file_read(calm_ctx *ctx, const char *path, calm_json **out);

/* The same of a document in memory; `where` stands in messages. */
calm_status calm_recipe_file_check(calm_ctx *ctx, const char *where, const calm_json *recipe);

/* Set every option that the recipe names, but those that were given on the command line: given[i] of the option at position
 * i of CALM_QUANTIZE_OPTIONS; NULL: none was.  Digests go to opts->demanded, but those of a model or a text that was given.
 *   path        stands in messages
 *   overrides   an object that gets the value of each option given although the recipe has it too (NULL: not wanted)
 * Texts in ctx->out, the document may be freed.  CALM_EARG: a value that the option refuses. */
calm_status calm_recipe_file_apply(calm_ctx *ctx, const calm_json *recipe, const char *path, const bool *given,
                                   calm_quantize_options *opts, calm_json *overrides);

/* The recipe document of these options, in a fixed order; freed by the caller.  Every number and word is written, also when
 * it is the default; texts that are not given are left out. */
calm_status calm_recipe_file_json(calm_ctx *ctx, const calm_quantize_options *opts, calm_json **out);

#endif
