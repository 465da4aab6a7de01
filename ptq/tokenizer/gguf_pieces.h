/* Tokens of a GGUF file, for tokenizer.json. */
#pragma once

#include "ptq/io/gguf.h"
#include "ptq/io/json.h"
#include "ptq/tokenizer/vocab.h"

/* tokenizer.ggml.token_type */
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
    float score;         /* 0 without scores */
    calm_gguf_piece_kind kind;
} calm_gguf_piece;

typedef struct calm_gguf_pieces {
    const calm_gguf *file;
    calm_gguf_piece *of;      /* [n], by id */
    size_t n;
    calm_vocab ids;      /* of their texts */
} calm_gguf_pieces;

/* Read tokens, types and, where `scored`, scores; everything is in ctx->out. */
calm_status calm_gguf_pieces_read(calm_ctx *ctx, const calm_gguf *file, bool scored, calm_gguf_pieces *out);

/* {"text": id, ...} */
calm_json *calm_gguf_pieces_vocab(const calm_gguf_pieces *pieces);

/* "added_tokens": those that are neither normal, unused nor bytes. */
calm_json *calm_gguf_pieces_added(const calm_gguf_pieces *pieces);

/* "merges": every pair of normal tokens that are a normal token together.  Those that make the token of the highest
 * score come first, as llama.cpp merges; of one score, by the id made, then by the length of the left one. */
calm_status calm_gguf_pieces_merges(calm_ctx *ctx, const calm_gguf_pieces *pieces, calm_json **out);
