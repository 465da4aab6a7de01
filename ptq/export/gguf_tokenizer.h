/* A checkpoint's tokenizer as keys of a GGUF file, so that llama.cpp gives the ids of tokenizer.json.
 *
 *   byte-level BPE        tokenizer.ggml.model "gpt2": tokens, types, merges, and the pre-tokenizer's name
 *   SentencePiece's BPE   "llama": tokens, types, and scores that rise as merges come earlier
 *   Unigram               "t5": tokens, types, scores and the precompiled character map
 *   WordPiece             "bert": first pieces of words begin with U+2581, others have no mark
 *   no tokenizer.json     "none": llama.cpp then accepts only ids
 *
 * Types of tokens: 1 normal, 2 unknown, 3 control (added, special), 4 user-defined (added), 5 unused, 6 byte. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/io/gguf_write.h"
#include "ptq/io/json.h"
#include "ptq/tokenizer/gguf_pre.h"

/* Adds the keys for the tokenizer in `dir` to `keys`, with `n_tokens` tokens, one per row of the embedding: tokens
 * without a row are dropped with a warning, rows without a token become "[PAD<id>]".  `config` is config.json, for the
 * ids of special tokens that are not in tokenizer_config.json.  `embeds`: the model gives embeddings, so the end token
 * is the one after a text, and config.json's end of generation is ignored.  `pre` names the pre-tokenizer; NULL: calm
 * finds it from the pattern.  CALM_EUNSUPPORTED: a kind of tokenizer that llama.cpp does not have, or a pattern whose
 * name is not known, with the pattern and the option that sets it.  CALM_EFORMAT: files that contradict themselves. */
calm_status calm_gguf_add_tokenizer(calm_ctx *ctx, const char *dir, const calm_json *config, size_t n_tokens,
                                    bool embeds, const char *pre, calm_gguf_keys *keys);
