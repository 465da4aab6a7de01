/* llama.cpp's names of pre-tokenizers ("tokenizer.ggml.pre"), and what each does. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/io/json.h"

/* What the pre-tokenizers of a byte-level tokenizer.json do, as one text: a line for each part, in ctx->out. */
calm_status calm_gguf_pattern(calm_ctx *ctx, const calm_json *tokenizer, char **out);

/* llama.cpp's name of the pre-tokenizer with this pattern; NULL when it is not known.  `whole_words`: the model takes a
 * piece that is a token as it is ("ignore_merges"). */
const char *calm_gguf_find_pre(const char *pattern, bool whole_words);

/* The way back, names with the same pattern included: the pattern of a name and whether its model takes whole words;
 * NULL when it is not known. */
const char *calm_gguf_pre_of(const char *name, bool *whole_words);

/* The "pre_tokenizer" of a byte-level tokenizer.json with this pattern; NULL when memory is out. */
calm_json *calm_gguf_pre_json(const char *pattern);
