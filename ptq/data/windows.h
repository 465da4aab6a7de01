/* Windows of tokens: the input of calibration and evaluation.
 *
 * A text is one token stream cut into windows of `seqlen` tokens, the remainder dropped.  JSON lines
 * ({"text": ...}, or a plain string, one document a line) never share a window: each document gives its full windows
 * and, where at least 2 tokens remain, one shorter window.
 *
 * With `special` every window begins with the special tokens that the tokenizer's template puts before a text (BOS),
 * as a model was trained to read, and has this many tokens of the text less; what the template puts behind a text,
 * which hardly a window ends with, is left out.  A chat begins as its chat template says: with BOS once, and then so do
 * the windows that continue it, or without. */
#pragma once

#include <stdint.h>

#include "ptq/base/context.h"
#include "ptq/base/sha256.h"
#include "ptq/data/chat.h"
#include "ptq/data/token_file.h"

typedef struct calm_windows {
    uint32_t *ids;            /* all windows one after the other                                */
    size_t *begin;            /* [n + 1] window w is ids[begin[w]] .. ids[begin[w + 1]] - 1     */
    size_t n, longest;        /* windows; tokens of the longest                                 */
    uint8_t *text;            /* [n] which of n_texts texts a window is of; NULL: there is one  */
    size_t n_texts;           /* 0 and 1: one                                                   */
    uint32_t *positions;      /* of every id within its window, rising; NULL: 0, 1, ...           */
    uint8_t *types;           /* token type of every id, for encoders; NULL: all 0                 */
    size_t n_tokens;          /* of the whole text alone, before windows were chosen            */
    size_t n_available;       /* windows the text has                                           */
    char sha256[CALM_SHA256_HEX];    /* of the lengths and ids of the chosen windows            */
} calm_windows;

typedef struct calm_windows_options {
    size_t seqlen;       /* tokens per window, >= 2                                              */
    size_t n_windows;    /* at most this many windows; 0 = all                                     */
    long long seed;      /* < 0: the first ones; else drawn without replacement                  */
    size_t n_spread;     /* with seed < 0 the last this many of n_windows are spread over what the
                          * first ones leave of the text, each in the middle of an equal part    */
    size_t doublings;    /* so often those that are spread are doubled, as far as the text has
                          * windows: others behind n_windows, which stay the same, each time spread
                          * over what is left; with a seed drawn                                 */
    size_t vocab;        /* ids at or above this are an error; 0 = not checked                   */
    bool special;        /* begin every window as the tokenizer's template begins a text         */
    calm_chat *chat;     /* the chat template of the model; NULL: chats are refused              */
    const char *prompt;  /* stands before the text of each sentence; NULL: nothing does          */
} calm_windows_options;

/* Read `path` (JSON or text, as calm_texts_open says), tokenize, cut and choose, into ctx->out.
 * CALM_EARG: an empty text, or one shorter than a window; a window without room for the text.  CALM_EFORMAT: text that
 * is not UTF-8 (with its place), a line that is not JSON (with its number), an id outside the vocabulary, of the text
 * or of the template. */
calm_status calm_windows_read(calm_ctx *ctx, const calm_tokenizer *tokenizer, const char *path,
                              const calm_windows_options *options, calm_windows *out);

/* The same from the ids of a token file, as they are: each sequence, less its padding, is cut as a document of JSON
 * lines is, without `special`; token types are not kept.  CALM_EARG when the text has not one whole window. */
calm_status calm_windows_from_tokens(calm_ctx *ctx, const calm_token_file *file, const calm_windows_options *options,
                                     calm_windows *out);

/* Each sequence of a token file as one window without its padding; tokens keep their positions in the sequence. */
calm_status calm_windows_from_sequences(calm_ctx *ctx, const calm_token_file *file, calm_windows *out);

/* The windows of n >= 1 texts as one set, a window of each in turn while it has one left, so that the first ones are
 * of all texts alike; out->text says which.  Copied into ctx->out; without positions and types, which texts have
 * not. */
calm_status calm_windows_join(calm_ctx *ctx, const calm_windows *texts, size_t n, calm_windows *out);

/* Tokens of the windows of text `text`. */
size_t calm_windows_text_tokens(const calm_windows *windows, size_t text);

/* Windows w0 .. w0 + n - 1 of `from` as a separate set, with a separate digest, that borrows the ids. */
calm_status calm_windows_slice(calm_ctx *ctx, const calm_windows *from, size_t w0, size_t n, calm_windows *out);

/* The first n windows of `from`, of each its first `tokens` at most, as a separate set; copied into ctx->out,
 * without which texts they are of. */
calm_status calm_windows_cut(calm_ctx *ctx, const calm_windows *from, size_t n, size_t tokens, calm_windows *out);

/* Windows before part `part` of n_parts of n: parts end where batches of `batch` windows end.  0 where batch is. */
size_t calm_windows_before(size_t n, size_t batch, size_t part, size_t n_parts);

/* Part `part` of n_parts of the windows as such a set, and in *first the number of its first one: parts end where
 * batches of `batch` windows end, and `longest` is that of all, from which batches follow.  n is 0 where batches are
 * fewer. */
calm_status calm_windows_part(calm_ctx *ctx, const calm_windows *from, size_t batch, size_t part, size_t n_parts,
                              calm_windows *out, size_t *first);

/* The windows that `options` ask for of `available`: seed, n_windows, n_spread and doublings alone are read.
 * *chosen [*n] in ctx->scratch: the first ones and those spread, rising, then those of each doubling, rising; or drawn
 * ones in drawing order.  CALM_ENOMEM. */
calm_status calm_windows_choose(calm_ctx *ctx, const calm_windows_options *options, size_t available, size_t *n,
                                size_t **chosen);

/* One more than the largest position of any window: the rows that position tables need. */
size_t calm_windows_reach(const calm_windows *windows);

/* The end of the windows from `first` on, at most `end`, that have `tokens` together; at least the first. */
size_t calm_windows_together(const calm_windows *windows, size_t first, size_t end, size_t tokens);
