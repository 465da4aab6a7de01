/* Converts the tokenizer of a GGUF file to a tokenizer.json that gives llama.cpp's ids.
 *
 *   tokenizer.ggml.model "gpt2"    byte-level BPE: tokens, types, merges, and the pre-tokenizer that
 *                                  tokenizer.ggml.pre names
 *   "llama"                        BPE over characters with byte fallback: a merge for every two tokens whose
 *                                  concatenation is a token, ordered by its score
 *   "t5"                           Unigram: tokens, scores, and the precompiled character map
 *   "bert"                         WordPiece: U+2581 begins a word, a token without it continues one
 *
 * add_bos_token and add_eos_token decide about special tokens at the beginning and the end of a text.  GGUF files
 * have no normal forms (NFC) and no flags of added tokens (lstrip, rstrip, single_word), so the tokenizer has none. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/io/gguf.h"
#include "ptq/io/json.h"

/* Converts to tokenizer.json; *out is freed with calm_json_free.  CALM_EUNSUPPORTED: another model (rwkv, none), a
 * pre-tokenizer with an unknown name.  CALM_EFORMAT: keys that are missing or have other lengths, texts that are
 * not UTF-8, two tokens with the same text. */
calm_status calm_gguf_tokenizer_json(calm_ctx *ctx, const calm_gguf *file, calm_json **out);

/* Converts to tokenizer_config.json: the special tokens and the chat template, for transformers. */
calm_status calm_gguf_tokenizer_settings(calm_ctx *ctx, const calm_gguf *file, calm_json **out);

/* Finds the file of a model's tokenizer, in ctx->out: tokenizer.json in or next to `model`; if that does not exist
 * and `model` is a GGUF file with tokens, `model` itself; otherwise the path of the missing tokenizer.json. */
calm_status calm_gguf_tokenizer_find(calm_ctx *ctx, const char *model, char **out);
