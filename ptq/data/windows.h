/* Windows of tokens: the input of calibration and evaluation.
 *
 * A text is one token stream, cut into windows of `seqlen` tokens; the remainder is dropped.  JSON documents
 * ({"text": ...}, or a plain string, one per line) never share a window: each gives its full windows and, if at
 * least 2 tokens remain, one shorter window.
 *
 * With `special`, every window begins with the special tokens that the tokenizer's template puts before a text
 * (BOS), as in training, and has as many fewer tokens of the text; the template's tokens behind a text are left
 * out, since hardly any window ends with the text.  The windows of a chat begin as its chat template does: each
 * with one BOS, or all without. */
#pragma once

#include <stdint.h>

#include "ptq/base/context.h"
#include "ptq/base/sha256.h"
#include "ptq/data/chat.h"
#include "ptq/data/token_file.h"

typedef struct calm_windows {
    uint32_t *ids;            /* ids of all windows                                             */
    size_t *begin;            /* [n + 1] window w is ids[begin[w]] .. ids[begin[w + 1]] - 1     */
    size_t n, longest;        /* windows; tokens of the longest window                          */
    uint8_t *text;            /* [n] index of the text of a window; NULL: one text              */
    size_t n_texts;           /* number of texts; 0: one                                        */
    uint32_t *positions;      /* position of every id in its sequence, rising; NULL: 0, 1, ...    */
    uint8_t *types;           /* token type of every id, for encoders; NULL: all 0                 */
    size_t n_tokens;          /* tokens of the whole text                                       */
    size_t n_available;       /* windows of the whole text                                      */
    char sha256[CALM_SHA256_HEX];    /* digest of lengths and ids of the chosen windows         */
} calm_windows;

typedef struct calm_windows_options {
    size_t seqlen;       /* tokens per window, >= 2                                              */
    size_t n_windows;    /* largest number of windows; 0 = all                                     */
    long long seed;      /* < 0: the first windows; else drawn without replacement               */
    size_t n_spread;     /* seed < 0: the last n_spread of n_windows are spread over the rest of the text, each in
                          * the middle of an equal part */
    size_t doublings;    /* number of times that the spread windows are doubled, as far as the text has windows:
                          * further windows behind n_windows (which do not change), each time spread over the rest;
                          * drawn if there is a seed */
    size_t vocab;        /* exclusive upper bound of ids; 0 = not checked                        */
    bool special;        /* begin every window with the template's special tokens                */
    calm_chat *chat;     /* the chat template of the model; NULL: chats are refused              */
    const char *prompt;  /* text before each sentence; NULL: none                                */
} calm_windows_options;

/* Reads `path` (JSON or text, as calm_texts_open says), tokenizes it, and cuts and chooses windows, into ctx->out.
 * CALM_EARG: an empty text, or one shorter than a window; a window without room for the text.  CALM_EFORMAT: text
 * that is not UTF-8 (with its place), a line that is not JSON (with its number), an id of the text or the template
 * outside the vocabulary. */
calm_status calm_windows_read(calm_ctx *ctx, const calm_tokenizer *tokenizer, const char *path,
                              const calm_windows_options *options, calm_windows *out);

/* Makes windows from the ids of a token file: each sequence without its padding is cut like a JSON document,
 * without `special`; token types are dropped.  CALM_EARG: the text has no whole window. */
calm_status calm_windows_from_tokens(calm_ctx *ctx, const calm_token_file *file, const calm_windows_options *options,
                                     calm_windows *out);

/* Makes each sequence of a token file one window without its padding; tokens keep their positions in the sequence. */
calm_status calm_windows_from_sequences(calm_ctx *ctx, const calm_token_file *file, calm_windows *out);

/* Joins the windows of n >= 1 texts to one set, round-robin over the texts, so that the first windows represent all
 * texts equally; out->text has the text of each window.  Copies into ctx->out, without positions and types, which
 * texts do not have. */
calm_status calm_windows_join(calm_ctx *ctx, const calm_windows *texts, size_t n, calm_windows *out);

/* Returns the number of tokens in the windows of text `text`. */
size_t calm_windows_text_tokens(const calm_windows *windows, size_t text);

/* Makes a set of windows w0 .. w0 + n - 1 of `from`, which borrows their ids and has its own digest. */
calm_status calm_windows_slice(calm_ctx *ctx, const calm_windows *from, size_t w0, size_t n, calm_windows *out);

/* Makes a set of the first n windows of `from`, each cut to its first `tokens`; copied into ctx->out, without
 * out->text. */
calm_status calm_windows_cut(calm_ctx *ctx, const calm_windows *from, size_t n, size_t tokens, calm_windows *out);

/* Returns the number of windows before part `part` of n_parts of n windows: parts end where batches of `batch`
 * windows end; 0 for batch 0. */
size_t calm_windows_before(size_t n, size_t batch, size_t part, size_t n_parts);

/* Makes a set of part `part` of n_parts of the windows; *first: index of its first window.  Parts end where batches
 * of `batch` windows end, and `longest` is that of all windows, since batches depend on it.  n may be 0 if there are
 * fewer batches than parts. */
calm_status calm_windows_part(calm_ctx *ctx, const calm_windows *from, size_t batch, size_t part, size_t n_parts,
                              calm_windows *out, size_t *first);

/* Chooses windows out of `available` by seed, n_windows, n_spread and doublings of `options`.  *chosen [*n] in
 * ctx->scratch: the first and the spread windows in rising order, then those of each doubling in rising order; or
 * drawn windows in drawing order.  CALM_ENOMEM. */
calm_status calm_windows_choose(calm_ctx *ctx, const calm_windows_options *options, size_t available, size_t *n,
                                size_t **chosen);

/* Returns the largest position of any window plus one: the rows that position tables need. */
size_t calm_windows_reach(const calm_windows *windows);

/* Warns, in a line that begins with `name`, when windows are longer than the `positions` (max_position_embeddings) of
 * the decoder in `dir`: rotary positions continue, but the model was not trained on them. */
void calm_windows_warn_positions(calm_ctx *ctx, const calm_windows *windows, size_t positions, const char *dir,
                                 const char *name);

/* Returns the end of the shortest range of windows from `first` on that has at least `tokens` tokens, at most
 * `end`; the range has at least one window. */
size_t calm_windows_range_end(const calm_windows *windows, size_t first, size_t end, size_t tokens);
