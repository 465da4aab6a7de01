/* Words of a recipe: lists as typed, and the canonical text of chains in them. */
#pragma once

#include "ptq/base/option.h"
#include "ptq/plan/requests.h"
#include "ptq/recipe/recipe.h"
#include "ptq/recipe/spec.h"

/* A word for candidates ("gptq", "gptq(damp=0.1) w3a16_g128", "mkq*", "#12"), with its chain made canonical where it is
 * one that this calm knows.  Refers to `text`; the rest in ctx->out. */
calm_status calm_word_parse(calm_ctx *ctx, const char *text, calm_word *out);

/* Append words to out [*n], which has room for them. */
calm_status calm_words_parse(calm_ctx *ctx, const calm_words *words, calm_word *out, size_t *n);

/* Append a pin of a round to out [*n], which has room for it; of a unit or candidate that is NULL, nothing. */
calm_status calm_pins_add(calm_ctx *ctx, const char *unit, const char *candidate, int round, calm_pin *out, size_t *n);

/* Append pins of a round to out [*n], which has room for them. */
calm_status calm_pins_parse(calm_ctx *ctx, const calm_pairs *pairs, int round, calm_pin *out, size_t *n);

/* Take what the spec forbids out of the recipe's pool; candidates that it names by number stay in recipe->forbid.
 * CALM_EARG: a word that names nothing, with the nearest name; nothing is left, or nothing of a scheme. */
calm_status calm_recipe_forbid(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe);

/* Parse the spec's pins (unit, candidate) into recipe->pins; the pool is complete.  CALM_EARG: a candidate that the
 * pool does not have. */
calm_status calm_recipe_pins(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe);
