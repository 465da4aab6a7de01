/* Excerpts: readable text of a few tokens, for reports. */
#pragma once

#include "ptq/tokenizer/tokenizer.h"

/* Text of ids [n] in ctx->out, special tokens included; the ids themselves without a tokenizer (NULL), or where one of
 * them has no token: a model may predict such an id, since vocabularies are padded.  It has no NUL inside: each is
 * U+FFFD, as pieces of characters are. */
calm_status calm_excerpt(calm_ctx *ctx, const calm_tokenizer *tokenizer, const uint32_t *ids, size_t n, char **out);
