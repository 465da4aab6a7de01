/* Private parts of writing a tokenizer to GGUF.  Only files of this folder include this file. */
#pragma once

#include "ptq/io/gguf_write.h"
#include "ptq/io/json.h"
#include "ptq/tokenizer/gguf_pieces.h"

typedef struct calm_gguf_written_token {
    const char *text;    /* NULL: no token has this id */
    size_t n;
    float score;
    calm_gguf_piece_kind type;
} calm_gguf_written_token;

/* A checkpoint's tokenizer while it is converted to keys. */
typedef struct calm_gguf_vocab_reader {
    const char *path;
    const calm_json *root, *config, *settings;    /* tokenizer.json, config.json, tokenizer_config.json (NULL: none) */
    const calm_json *model;                       /* the member "model" of tokenizer.json                            */
    calm_gguf_written_token *tokens;              /* [n] */
    size_t n, n_left_out;
    bool embeds;                                  /* the model gives embeddings */
} calm_gguf_vocab_reader;

/* Adds the ids of special tokens, and which of them the tokenizer adds around a text (gguf_special.c). */
void calm_gguf_add_special(const calm_gguf_vocab_reader *in, calm_gguf_keys *keys);
