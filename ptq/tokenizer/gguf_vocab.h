/* The tokenizer in a GGUF file as the tokenizer.json that gives llama.cpp's ids.
 *
 *   tokenizer.ggml.model "gpt2"    byte-level BPE: tokens, types, merges, and the pre-tokenizer that
 *                                  tokenizer.ggml.pre names
 *   "llama"                        BPE over characters with bytes to fall back to: a merge for every two tokens that
 *                                  are a third one together, ordered by that one's score
 *   "t5"                           Unigram: tokens, scores, and the precompiled character map
 *   "bert"                         WordPiece: U+2581 begins a word, what has none continues one
 *
 * The beginning and the end of a text have the tokens that add_bos_token and add_eos_token say.  What a file does not
 * say, it does not have: normal forms (NFC), and flags of added tokens (lstrip, rstrip, single_word). */
#pragma once

#include "ptq/base/context.h"
#include "ptq/io/gguf.h"
#include "ptq/io/json.h"

/* tokenizer.json; *out is freed with calm_json_free.  CALM_EUNSUPPORTED: another model (rwkv, none), a
 * pre-tokenizer whose name is not known.  CALM_EFORMAT: keys that are
 * missing or of other lengths, texts that are not UTF-8, two tokens of one text. */
calm_status calm_gguf_tokenizer_json(calm_ctx *ctx, const calm_gguf *file, calm_json **out);

/* tokenizer_config.json: the special tokens and the chat template, for transformers. */
calm_status calm_gguf_tokenizer_settings(calm_ctx *ctx, const calm_gguf *file, calm_json **out);

/* The file to open a model's tokenizer from, in ctx->out: the tokenizer.json in or next to `model`, else `model` itself
 * where it is a GGUF file with tokens; else the former, which is not there. */
calm_status calm_gguf_tokenizer_find(calm_ctx *ctx, const char *model, char **out);
