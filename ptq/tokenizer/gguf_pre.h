/* llama.cpp's names of pre-tokenizers ("tokenizer.ggml.pre"), and the pre-tokenizers that they name. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/io/json.h"

/* Describes the pre-tokenizers of a byte-level tokenizer.json as a text with one line per part (its pattern), in
 * ctx->out. */
calm_status calm_gguf_pattern(calm_ctx *ctx, const calm_json *tokenizer, char **out);

/* Returns llama.cpp's name of the pre-tokenizer with this pattern; NULL: unknown.  `whole_words`: the model does
 * not merge a piece that is itself a token ("ignore_merges"). */
const char *calm_gguf_find_pre(const char *pattern, bool whole_words);

/* Returns the pattern of a name, and whether its model has whole words; NULL: unknown. */
const char *calm_gguf_pre_of(const char *name, bool *whole_words);

/* Returns the member "pre_tokenizer" of a byte-level tokenizer.json with this pattern; NULL: out of memory. */
calm_json *calm_gguf_pre_json(const char *pattern);
