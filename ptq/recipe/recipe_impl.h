/* What the writers of a recipe's JSON share.  Only files of this folder and their tests include it. */
#ifndef CALM_RECIPE_RECIPE_IMPL_H
#define CALM_RECIPE_RECIPE_IMPL_H

#include "ptq/io/json.h"

/* A list or an object itself; NULL, and it is freed, when it is empty: objects then have no such member (recipe.c). */
calm_json *calm_recipe_filled(calm_json *value);

#endif
