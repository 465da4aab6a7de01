/* Words of a recipe: lists as people type them, and the canonical text of chains in them. */
#ifndef CALM_CLI_RECIPE_WORDS_H
#define CALM_CLI_RECIPE_WORDS_H

#include "ptq/plan/requests.h"

/* A word for candidates ("gptq", "gptq(damp=0.1) w3a16_g128", "mkq*", "#12"), with its chain made canonical where it is one
 * that this calm knows.  Refers to `text`; the rest in ctx->out. */
calm_status calm_word_parse(calm_ctx *ctx, const char *text, calm_word *out);

/* Append the words of a comma list to words [*n], which has room for strlen(list) + 1 more. */
calm_status calm_words_add(calm_ctx *ctx, const char *list, calm_word *words, size_t *n);

/* Append the pins of a comma list "UNIT=CANDIDATE,..." to pins [*n], which has room for strlen(list) + 1 more.  CALM_EARG:
 * one is not of that form. */
calm_status calm_pins_add(calm_ctx *ctx, const char *list, int round, calm_pin *pins, size_t *n);

#endif
