/* Tokens of a GGUF file, converted to members of tokenizer.json. */
#pragma once

#include "ptq/io/gguf.h"
#include "ptq/io/json.h"
#include "ptq/tokenizer/vocab.h"

/* Values of tokenizer.ggml.token_type. */
typedef enum calm_gguf_piece_kind {
    CALM_GGUF_PIECE_NORMAL = 1,
    CALM_GGUF_PIECE_UNKNOWN = 2,
    CALM_GGUF_PIECE_CONTROL = 3,
    CALM_GGUF_PIECE_USER_DEFINED = 4,
    CALM_GGUF_PIECE_UNUSED = 5,
    CALM_GGUF_PIECE_BYTE = 6
} calm_gguf_piece_kind;

typedef struct calm_gguf_piece {
    const char *text;    /* UTF-8 without U+0000 */
    uint32_t n;
    float score;         /* 0 if the file has no scores */
    calm_gguf_piece_kind kind;
} calm_gguf_piece;

typedef struct calm_gguf_pieces {
    const calm_gguf *file;
    calm_gguf_piece *of;      /* [n], by id */
    size_t n;
    calm_vocab ids;      /* from texts to ids */
} calm_gguf_pieces;

/* Reads tokens, types and, if `scored`, scores into ctx->out. */
calm_status calm_gguf_pieces_read(calm_ctx *ctx, const calm_gguf *file, bool scored, calm_gguf_pieces *out);

/* Returns the member "vocab": {"text": id, ...}. */
calm_json *calm_gguf_pieces_vocab(const calm_gguf_pieces *pieces);

/* Returns the member "added_tokens": all tokens that are neither normal, unused nor bytes. */
calm_json *calm_gguf_pieces_added(const calm_gguf_pieces *pieces);

/* Computes the member "merges": every pair of normal tokens whose concatenation is a normal token.  Merges are
 * sorted by falling score of the merged token, in llama.cpp's order; equal scores by its id, then by the length of
 * the left token. */
calm_status calm_gguf_pieces_merges(calm_ctx *ctx, const calm_gguf_pieces *pieces, calm_json **out);
