/* Helpers that readers and writers of a recipe share.  Only files of this folder and their tests include it. */
#pragma once

#include "ptq/io/json.h"
#include "ptq/recipe/recipe.h"
#include "ptq/recipe/spec.h"

/* Returns a list or an object; frees it and returns NULL if it is empty, so that the JSON lacks the member. */
calm_json *calm_recipe_filled(calm_json *value);

/* Returns the list [first, last]. */
calm_json *calm_recipe_range(long long first, long long last);

/* Converts a boolean, a number or a text to the text that an option's parser reads, in ctx->out. */
calm_status calm_recipe_value_text(calm_ctx *ctx, const calm_json *value, char **out);

/* Returns the path and the name of the user's text `given`, or if that is NULL of the bundled text `bundled`, whose
 * name does not depend on where calm is installed; in ctx->out. */
calm_status calm_recipe_find_text(calm_ctx *ctx, const char *given, const char *bundled, const char **path,
                                  const char **name);

/* The properties of a model that resolving a recipe needs. */
typedef struct calm_model_kind {
    bool encoder, mixture;
    bool caches;    /* a block has a KV cache */
    bool back;      /* all blocks have a backward pass */
    bool unknown;   /* there is no directory yet (a name on the hub): caches and back are true, encoder is false */
} calm_model_kind;

/* Reads the properties of a recipe's model; `unknown` if the directory is missing.  Fails as reading its config.json or
 * its GGUF file does. */
calm_status calm_recipe_find_kind(calm_ctx *ctx, const calm_recipe *recipe, calm_model_kind *out);

/* Sets recipe->learn and the fields that depend on it (resolve_learn.c).  CALM_EARG: it contradicts other options. */
calm_status calm_recipe_resolve_learn(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe);

/* Set budgets, selection and sensitivity of a recipe, and check them against each other (resolve_choice.c).  CALM_EARG:
 * they contradict each other; the message has the key. */
calm_status calm_recipe_resolve_budgets(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe);
calm_status calm_recipe_resolve_selection(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe);
calm_status calm_recipe_resolve_sensitivity(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe);
calm_status calm_recipe_check_choice(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe);
