/* Sentences, the input of encoders.  Every line of a text, or document of JSON (calm_texts_open), is one
 * window, with the special tokens of the tokenizer's template around it. */
#pragma once

#include "ptq/data/windows.h"

/* Read `path` into ctx->out; blank lines are skipped.  Of the options
 *
 *   seqlen     most tokens of a window; of a longer sentence the first tokens and all special ones are kept
 *   n_windows  most sentences, which seed and n_spread choose as windows of a text; 0: all
 *   special    is not read: the template is always around a sentence
 *   prompt     is part of the sentence
 *
 * CALM_EARG: no sentence in the file; no room in `seqlen` next to the special tokens.  CALM_EFORMAT, with file and
 * line: text that is not UTF-8, a line that is not JSON, an id outside the vocabulary, a sentence without a token. */
calm_status calm_sentences_read(calm_ctx *ctx, const calm_tokenizer *tokenizer, const char *path,
                                const calm_windows_options *options, calm_windows *out);
