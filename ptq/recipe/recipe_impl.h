/* What readers and writers of a recipe's JSON share.  Only files of this folder and their tests include it. */
#pragma once

#include "ptq/io/json.h"
#include "ptq/recipe/recipe.h"
#include "ptq/recipe/spec.h"

/* A list or an object itself; NULL, and it is freed, when it is empty: objects then have no such member (recipe.c). */
calm_json *calm_recipe_filled(calm_json *value);

/* [first, last] */
calm_json *calm_recipe_range(long long first, long long last);

/* A truth value, a number or a text as an option's parser reads it, in ctx->out. */
calm_status calm_recipe_value_text(calm_ctx *ctx, const calm_json *value, char **out);

/* A text of the user, or where `given` is NULL the bundled one of that name: its path, and a name that does not depend
 * on where calm is, in ctx->out. */
calm_status calm_recipe_find_text(calm_ctx *ctx, const char *given, const char *bundled, const char **path,
                                  const char **name);

/* What a recipe needs to know of its model beforehand. */
typedef struct calm_model_kind {
    bool encoder, mixture;
    bool caches;    /* a block keeps keys and values */
    bool back;      /* all blocks have gradients     */
    bool unknown;   /* no directory yet, as of a name on the hub: the two above, no encoder */
} calm_model_kind;

/* Of a recipe, `unknown` without the directory of its model.  Fails as reading its config.json, or its one file,
 * does. */
calm_status calm_recipe_find_kind(calm_ctx *ctx, const calm_recipe *recipe, calm_model_kind *out);

/* recipe->learn and what follows from it.  CALM_EARG: it does not go with the rest (resolve_learn.c). */
calm_status calm_recipe_resolve_learn(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe);

/* Budgets, selection and sensitivities of a recipe, and what of them does not go together.  CALM_EARG: the message has
 * the key (resolve_choice.c). */
calm_status calm_recipe_resolve_budgets(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe);
calm_status calm_recipe_resolve_selection(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe);
calm_status calm_recipe_resolve_sensitivity(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe);
calm_status calm_recipe_check_choice(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe);
