/* Tokenizer: a checkpoint's tokenizer.json (or its equivalent from a GGUF file, gguf_vocab.h), text to ids and
 * back.
 *
 * The ids are those of the Hugging Face tokenizers library for the same file.  A component that calm does not know
 * is an error that names it; only "truncation" and "padding" are ignored, since callers cut windows.  Known
 * components:
 *
 *   normalizer       NFC NFD NFKC NFKD, Lowercase, Strip, StripAccents, Replace, Prepend, BertNormalizer, Precompiled,
 *                    Sequence
 *   pre_tokenizer    Split (any pattern and behavior), Digits, Punctuation, Whitespace, WhitespaceSplit,
 *                    BertPreTokenizer, Metaspace, ByteLevel as the last, Sequence
 *   model            BPE (without dropout), WordPiece, Unigram
 *   post_processor   TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel, Sequence
 *   decoder          ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace, WordPiece, BPEDecoder, Sequence, none
 *   added_tokens     all flags; their ids are those of the file
 *
 * An open tokenizer is never modified: any number of threads may use it, each with its own context. */
#pragma once

#include "ptq/base/scope.h"
#include <stdint.h>

#include "ptq/base/context.h"

/* Returns a token in printable form: white space other than ' ', control characters and bytes that are not UTF-8
 * are written as \n, \t, \r, \u{...} or \xNN.  Owned by the tokenizer; "" for an id without a token. */
const char *calm_tokenizer_token(const calm_tokenizer *tok, uint32_t id);

/* Returns the highest id plus one, added tokens included. */
size_t calm_tokenizer_size(const calm_tokenizer *tok);

/* Returns the number of special tokens that the template puts before a text (BOS); *ids is owned by the tokenizer. */
size_t calm_tokenizer_head(const calm_tokenizer *tok, const uint32_t **ids);

/* Declares `calm_tokenizer *name = NULL`, which is closed at the end of its scope. */
#define CALM_SCOPED_TOKENIZER(name) CALM_SCOPED(calm_tokenizer, calm_tokenizer_release) *name = NULL
static inline void calm_tokenizer_release(calm_tokenizer **tokenizer)
{
    calm_tokenizer_close(*tokenizer);
}
