/* Faults of a recipe: of its names, and of what they mean for a model that lies here. */
#ifndef CALM_RUN_CHECK_RECIPE_H
#define CALM_RUN_CHECK_RECIPE_H

#include "ptq/recipe/resolve.h"

/* List the faults of a spec: those of calm_recipe_check, and without such, where the model is here, blocks, pins,
 * target, budgets and gates against its layout; no weight is read.  CALM_ENOMEM. */
calm_status calm_spec_faults(calm_ctx *ctx, const calm_recipe_spec *spec, calm_faults *faults);

/* The same of a file, its structure first.  CALM_ENOMEM, CALM_EIO, CALM_EFORMAT (not JSON). */
calm_status calm_recipe_file_faults(calm_ctx *ctx, const char *path, calm_faults *faults);

#endif
