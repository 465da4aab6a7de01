/* Tokenizer: a checkpoint's tokenizer.json, text to ids and back.
 *
 * The ids are those of the Hugging Face tokenizers library for the same file.  A part of the file that calm does not
 * know is an error that names it; only "truncation" and "padding" are ignored, since callers cut windows.  Known parts:
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
 * An open tokenizer is never written to: any number of threads may use it, each with its own context. */
#ifndef CALM_TOKENIZER_TOKENIZER_H
#define CALM_TOKENIZER_TOKENIZER_H

#include <stdint.h>

#include "ptq/base/context.h"

typedef struct calm_tokenizer calm_tokenizer;

/* Read `path`, a tokenizer.json.  *out is released with calm_tokenizer_close and NULL on failure.
 *
 * Fails with CALM_ENOTFOUND, CALM_EIO, CALM_ENOMEM; CALM_EFORMAT when the file is not JSON, larger than 64 MiB,
 * or contradicts itself (a merge of unknown tokens, an id given twice); CALM_EUNSUPPORTED for a part that is
 * not in the list above.  The message names the file, the place in it and what was found. */
calm_status calm_tokenizer_open(calm_ctx *ctx, const char *path, calm_tokenizer **out);
void calm_tokenizer_close(calm_tokenizer *tok);

/* Ids of `text` [n_bytes] as one string.
 *
 *   special  put the template's special tokens around it
 *   ids      [*n_ids], in ctx->out; never NULL on success
 *
 * The text of an added token ("<|im_end|>") inside `text` always becomes its id.  Fails with CALM_EFORMAT when
 * the text is not UTF-8, with the byte's offset, when a pattern's search passes its limits, or when a Unigram without
 * an unknown token meets an unknown character; CALM_EARG when the text is, or becomes by the normalizers, 2 GiB or
 * longer; CALM_ENOMEM. */
calm_status calm_tokenizer_encode(calm_ctx *ctx, const calm_tokenizer *tok, const char *text, size_t n_bytes,
                                  bool special, uint32_t **ids, size_t *n_ids);

/* Text of `ids` [n].
 *
 *   special  keep the special tokens, else they are left out
 *   text     [*n_bytes] and a NUL, well-formed UTF-8 (pieces of characters become U+FFFD), in ctx->out
 *
 * Fails with CALM_EARG for an id without a token, CALM_ENOMEM. */
calm_status calm_tokenizer_decode(calm_ctx *ctx, const calm_tokenizer *tok, const uint32_t *ids, size_t n,
                                  bool special, char **text, size_t *n_bytes);

/* A token in printable form: white space other than ' ', control characters and bytes that are not UTF-8 are written as
 * \n, \t, \r, \u{...} or \xNN.  Owned by the tokenizer; "" for an id without a token. */
const char *calm_tokenizer_token(const calm_tokenizer *tok, uint32_t id);

/* One more than the highest id, added tokens included. */
size_t calm_tokenizer_size(const calm_tokenizer *tok);

#endif
