/* Sentences, the input of encoders.  Every line of a text, or document of JSON (calm_texts_open), is one window,
 * with the special tokens of the tokenizer's template around it. */
#pragma once

#include "ptq/data/windows.h"

/* Reads `path` into ctx->out; skips blank lines.  Options:
 *
 *   seqlen     most tokens of a window; a longer sentence keeps its first tokens and all special tokens
 *   n_windows  most sentences, which seed and n_spread select as windows of a text; 0: all
 *   special    ignored: the template is always applied
 *   prompt     is put before each sentence
 *
 * CALM_EARG: no sentence in the file; `seqlen` has no room beyond the special tokens.  CALM_EFORMAT, with file and
 * line: text that is not UTF-8, a line that is not JSON, an id outside the vocabulary, a sentence without a token. */
calm_status calm_sentences_read(calm_ctx *ctx, const calm_tokenizer *tokenizer, const char *path,
                                const calm_windows_options *options, calm_windows *out);
