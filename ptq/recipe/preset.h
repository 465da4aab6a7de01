/* Presets: named levels of effort for a run.
 *
 *   fast      one algorithm, for 4-bit activations two, whose codes are not searched from several orders of the
 *             columns
 *   balanced  the default pool, scores and guard
 *   best      the same, then `learn` both; integer activations: `rotate` first, judged by the guard
 *
 * What is said besides counts; what leaves nothing of a preset is refused. */
#pragma once

#include "ptq/recipe/recipe.h"
#include "ptq/recipe/spec.h"

typedef enum calm_recipe_preset {
    CALM_RECIPE_FAST,
    CALM_RECIPE_BALANCED,
    CALM_RECIPE_BEST,
    CALM_RECIPE_N_PRESETS
} calm_recipe_preset;

#define CALM_RECIPE_PRESET_NAMES "fast|balanced|best"    /* in the order of the values, for option tables */

/* "fast"; and in a few words what it does, with what it was measured to be worth (docs/results.md). */
const char *calm_recipe_preset_name(calm_recipe_preset preset);
const char *calm_recipe_preset_about(calm_recipe_preset preset);

/* The pool of a preset at the recipe's schemes, a comma list; NULL: the default one. */
const char *calm_recipe_preset_pool(const calm_recipe_spec *spec, const calm_recipe *recipe);

/* CALM_EARG: what was said besides leaves nothing of the preset, or it nothing of that. */
calm_status calm_recipe_check_preset(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe);

/* recipe->rotate as the preset has it, once schemes, formats and model are known.  CALM_EARG: at these schemes the
 * preset does no more than another. */
calm_status calm_recipe_resolve_preset(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe);
