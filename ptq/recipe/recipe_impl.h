/* What the writers of a recipe's JSON share.  Only files of this folder and their tests include it. */
#ifndef CALM_RECIPE_RECIPE_IMPL_H
#define CALM_RECIPE_RECIPE_IMPL_H

#include "ptq/io/json.h"

/* Set a list or an object as a member, and free it instead when it is empty (recipe.c). */
void calm_recipe_set_filled(calm_json *object, const char *key, calm_json *value);

#endif
