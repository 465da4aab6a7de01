/* Sentences, the input of encoders.  Every line of a text, or document of JSON lines ({"text": ...}, or a plain
 * string; a path ending in .jsonl), is one window, with the special tokens of the tokenizer's template around it. */
#ifndef CALM_DATA_SENTENCES_H
#define CALM_DATA_SENTENCES_H

#include "ptq/data/windows.h"

/* Read `path` into ctx->out; blank lines are skipped.
 *
 *   seqlen    most tokens of a window; of a longer sentence the first tokens and all special ones are kept
 *   samples   most sentences, the first ones; 0: all
 *   n_spread  of these the last so many are spread over what the first ones leave (calm_windows_place)
 *   vocab     ids at or above this are an error; 0: not checked
 *
 * CALM_EARG: no sentence in the file; no room in `seqlen` beside the special tokens.  CALM_EFORMAT, with file and line:
 * text that is not UTF-8, a line that is not JSON, an id outside the vocabulary, a sentence without a token. */
calm_status calm_sentences_read(calm_ctx *ctx, const calm_tokenizer *tokenizer, const char *path, size_t seqlen,
                                size_t samples, size_t n_spread, size_t vocab, calm_windows *out);

#endif
