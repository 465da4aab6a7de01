/* Excerpts: readable text of a few tokens, for reports. */
#pragma once

#include "ptq/tokenizer/tokenizer.h"

/* Decodes ids [n] to a text in ctx->out, with special tokens.  Without a tokenizer (NULL), or if an id has no
 * token, it writes the ids as numbers: vocabularies are padded, so a model may predict such an id.  NULs and
 * incomplete characters become U+FFFD. */
calm_status calm_excerpt(calm_ctx *ctx, const calm_tokenizer *tokenizer, const uint32_t *ids, size_t n, char **out);
