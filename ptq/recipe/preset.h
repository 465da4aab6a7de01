/* Presets: named levels of effort for a run.
 *
 *   fast      one algorithm (with 4-bit activations two), which rounds in one column order instead of several; no
 *             guard where one algorithm leaves nothing to compare
 *   balanced  the default pool, scores and guard
 *   best      balanced, then `learn` both; with integer activations `rotate` first, which the guard judges
 *
 * Other options count more than the preset; options that leave nothing of the preset are refused. */
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

/* Return "fast"; and what the preset does in a few words, with its measured effect (docs/results.md). */
const char *calm_recipe_preset_name(calm_recipe_preset preset);
const char *calm_recipe_preset_about(calm_recipe_preset preset);

/* Returns the preset's pool at the recipe's schemes, a comma list; NULL: the default pool. */
const char *calm_recipe_preset_pool(const calm_recipe_spec *spec, const calm_recipe *recipe);

/* Fails with CALM_EARG if other options contradict the preset. */
calm_status calm_recipe_check_preset(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe);

/* Sets recipe->rotate and the guard's windows as the preset wants them, once schemes, formats and model are known.
 * CALM_EARG: at these schemes the preset does no more than another preset. */
calm_status calm_recipe_resolve_preset(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe);
