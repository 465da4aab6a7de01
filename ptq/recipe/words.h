/* Words of a recipe: lists as the user typed them, and the canonical text of the chains in them. */
#pragma once

#include "ptq/base/option.h"
#include "ptq/plan/requests.h"
#include "ptq/recipe/recipe.h"
#include "ptq/recipe/spec.h"

/* Parses a word for candidates ("gptq", "gptq(damp=0.1) w3a16_g128", "mkq*", "#12") and makes its chain canonical if
 * calm knows the chain.  *out refers to `text`; other memory is in ctx->out. */
calm_status calm_word_parse(calm_ctx *ctx, const char *text, calm_word *out);

/* Appends parsed words to out [*n], which has room for them. */
calm_status calm_words_parse(calm_ctx *ctx, const calm_words *words, calm_word *out, size_t *n);

/* Appends a pin of a round to out [*n], which has room for it; does nothing if unit or candidate is NULL. */
calm_status calm_pins_add(calm_ctx *ctx, const char *unit, const char *candidate, int round, calm_pin *out, size_t *n);

/* Appends pins of a round to out [*n], which has room for them. */
calm_status calm_pins_parse(calm_ctx *ctx, const calm_pairs *pairs, int round, calm_pin *out, size_t *n);

/* Removes what the spec forbids from the recipe's pool; candidates named by number stay in recipe->forbid.  CALM_EARG:
 * a word names nothing (the message has the nearest name), or nothing is left of the pool or of a scheme. */
calm_status calm_recipe_forbid(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe);

/* Parses the spec's pins (unit, candidate) into recipe->pins; the pool must be complete.  CALM_EARG: the pool lacks a
 * candidate. */
calm_status calm_recipe_pins(calm_ctx *ctx, const calm_recipe_spec *spec, calm_recipe *recipe);
