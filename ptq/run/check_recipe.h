/* Faults of a recipe: of its names, and of what they mean for a model that lies here. */
#ifndef CALM_RUN_CHECK_RECIPE_H
#define CALM_RUN_CHECK_RECIPE_H

#include "ptq/recipe/resolve.h"

/* List the faults of a recipe file: of its structure; without such, those of calm_recipe_check; without such, and where
 * the model is on this machine, blocks, pins, target, budgets and gates that do not suit its layout.  No weight is
 * read.  CALM_ENOMEM; CALM_EIO: the file cannot be read; CALM_EFORMAT: it is not JSON. */
calm_status calm_recipe_file_faults(calm_ctx *ctx, const char *path, calm_faults *faults);

#endif
