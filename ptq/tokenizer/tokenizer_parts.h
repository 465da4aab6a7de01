/* Inside of the tokenizer: what its source files share.  Callers use ptq/io/tokenizer.h.
 *
 *   text -> [cut out added tokens] -> normalizers -> [cut out normalized added tokens] -> pre-tokenizers -> model
 *        -> ids
 *
 *   tokenizer.c                                    opening: the members of tokenizer.json
 *   tokenizer_encode.c  tokenizer_decode.c         text -> ids, ids -> text
 *   tokenizer_added.c                              added tokens
 *   tokenizer_normalize.c  _bert.c  _precompiled.c normalizers
 *   tokenizer_split.c  _metaspace.c                pre-tokenizers
 *   tokenizer_bpe.c  _wordpiece.c  _unigram.c      models
 *   tokenizer_decoders.c  tokenizer_template.c     decoders and post-processors
 *   tokenizer_encoder.c                            pieces through pre-tokenizers to the model, and their ids
 *   tokenizer_parts.c  tokenizer_bytes.c           what their readers share; bytes, white space, patterns
 *
 * Each kind of part has one table of {type name, reader}: a new part is one reader, one function that does the work,
 * and one row.  A reader checks the JSON, and appends the part to the tokenizer. */
#ifndef CALM_TOKENIZER_TOKENIZER_PARTS_H
#define CALM_TOKENIZER_TOKENIZER_PARTS_H

#include "ptq/io/json.h"
#include "ptq/text/regex.h"
#include "ptq/tokenizer/tokenizer.h"
#include "ptq/text/unicode.h"
#include "ptq/tokenizer/vocab.h"

/* Ids lie below this; the largest vocabularies of today have 2^18. */
#define CALM_TOKENIZER_MAX_IDS (UINT32_C(1) << 22)

/* Normalizers, pre-tokenizers or decoders of one tokenizer, Sequences flattened. */
#define CALM_TOKENIZER_MAX_PARTS 16

/* Bytes of a text, also of what the normalizers make of it, are fewer: positions fit 32 bits with a margin. */
#define CALM_TOKENIZER_MAX_TEXT ((size_t)INT32_MAX)

typedef struct calm_encoder calm_encoder;

/* Some bytes of a text; borrowed.  `text` is never NULL. */
typedef struct calm_piece {
    const char *text;
    size_t n;
} calm_piece;

/* ---- what tokenizer.json says ---- */

typedef struct calm_token {
    calm_piece piece;     /* as the file writes it; text NULL: no token has this id */
    size_t shown;         /* offset in calm_tokenizer.shown                         */
    bool added;           /* listed in added_tokens: its text stands for itself     */
    bool special;
} calm_token;

typedef struct calm_added {
    calm_piece piece;     /* what is looked for; normalized in the second set */
    uint32_t id;
    bool single_word, lstrip, rstrip;
} calm_added;

typedef struct calm_added_set {
    calm_added *tokens;   /* [n], sorted by their bytes */
    size_t n;
    bool begins[256];     /* some token begins with this byte */
} calm_added_set;

/* A text on its way through the normalizers. */
typedef struct calm_normal {
    calm_piece piece;
    bool beheaded;        /* its first characters were taken away: it no longer begins where the text did */
} calm_normal;

/* What Replace and Split look for. */
typedef struct calm_pattern {
    calm_piece literal;   /* n > 0: these bytes                  */
    calm_regex *regex;    /* owned; looked for otherwise         */
    bool (*is_match)(uint32_t character);    /* with neither of them: each such character by itself */
} calm_pattern;

typedef struct calm_normalizer {
    /* Changes *text; new bytes go to ctx->scratch. */
    calm_status (*run)(calm_ctx *ctx, const struct calm_normalizer *self, calm_normal *text);
    calm_pattern pattern; /* Replace            */
    calm_piece content;   /* Replace, Prepend   */
    const void *data;     /* of the kind        */
    unsigned flags;       /* of the kind        */
} calm_normalizer;

typedef enum calm_split_behavior {
    CALM_SPLIT_ISOLATED, CALM_SPLIT_REMOVED, CALM_SPLIT_MERGED_WITH_PREVIOUS, CALM_SPLIT_MERGED_WITH_NEXT,
    CALM_SPLIT_CONTIGUOUS
} calm_split_behavior;

/* When Metaspace puts its character before a piece. */
typedef enum calm_prepend { CALM_PREPEND_NEVER, CALM_PREPEND_FIRST, CALM_PREPEND_ALWAYS } calm_prepend;

typedef struct calm_pretokenizer {
    /* Hands each piece of `in` to calm_encoder_pass(enc, index + 1, piece), in order. */
    calm_status (*run)(calm_encoder *enc, size_t index, calm_piece in);
    calm_pattern pattern;
    calm_split_behavior behavior;
    bool invert, whole;       /* whole: the piece is not split */
    calm_prepend prepend;     /* ByteLevel: a space; Metaspace: its character */
    calm_piece replacement;   /* Metaspace: the character that stands for a space */
} calm_pretokenizer;

typedef struct calm_decoder {
    /* Changes pieces [*n], well-formed UTF-8 each, in place; new texts go to ctx->scratch. */
    calm_status (*run)(calm_ctx *ctx, const struct calm_decoder *self, calm_piece *pieces, size_t *n);
    calm_pattern pattern;                /* Replace                                 */
    calm_piece content;                  /* Replace, Strip, Metaspace, WordPiece, BPEDecoder */
    size_t start, stop;                  /* Strip                                   */
    bool flag;                           /* Metaspace: spaces in front are dropped; WordPiece: clean up */
} calm_decoder;

struct calm_tokenizer {
    calm_arena arena;     /* everything below that is not said to be elsewhere */
    char *path;

    calm_token *tokens;   /* [n_ids] by id; on the heap, because it grows */
    size_t n_ids, ids_capacity;
    calm_text shown;      /* human-readable texts, each with its NUL */

    calm_added_set raw, normalized;    /* added tokens to find before and after the normalizers */

    calm_normalizer normalizers[CALM_TOKENIZER_MAX_PARTS];
    size_t n_normalizers;
    calm_pretokenizer pretokenizers[CALM_TOKENIZER_MAX_PARTS];
    size_t n_pretokenizers;
    bool byte_level;      /* the model sees pieces spelled in the byte-level alphabet */
    calm_decoder decoders[CALM_TOKENIZER_MAX_PARTS];
    size_t n_decoders;

    calm_vocab vocab;     /* of the model, without added tokens */
    const void *model;    /* data of the model's kind */
    /* Appends the ids of one piece, not empty, with calm_encoder_put. */
    calm_status (*encode)(calm_encoder *enc, calm_piece piece);
    /* The first place after byte `from` where a piece may be cut without changing the ids, or piece.n; NULL: none. */
    size_t (*cut)(const calm_tokenizer *tok, calm_piece piece, size_t from);

    uint32_t *before, *after;    /* special tokens of the template */
    size_t n_before, n_after;
};

/* ---- reading ---- */

/* `where` is "FILE: place" of `json`; messages begin with it. */
typedef calm_status calm_tokenizer_reader(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json);

typedef struct calm_tokenizer_type {
    const char *name;               /* NULL ends a table */
    calm_tokenizer_reader *read;
} calm_tokenizer_type;

/* Call the reader of the part `json` that its "type" names; for a Sequence, of each part of the array `list` (NULL:
 * this kind has no Sequences).  JSON null is no part.  CALM_EUNSUPPORTED: a type that the table does not have, with
 * those that it has; CALM_EFORMAT; else as the reader. */
calm_status calm_tokenizer_read_parts(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                                      const char *list, const calm_tokenizer_type *types);

/* Append an empty normalizer, pre-tokenizer or decoder to the tokenizer.  CALM_EUNSUPPORTED: it has
 * CALM_TOKENIZER_MAX_PARTS already; a pre-tokenizer after ByteLevel. */
calm_status calm_tokenizer_new_normalizer(calm_ctx *ctx, calm_tokenizer *tok, const char *where, calm_normalizer **out);
calm_status calm_tokenizer_new_pretokenizer(calm_ctx *ctx, calm_tokenizer *tok, const char *where,
                                            calm_pretokenizer **out);
calm_status calm_tokenizer_new_decoder(calm_ctx *ctx, calm_tokenizer *tok, const char *where, calm_decoder **out);

/* Copy the string `json` to `arena`, with a NUL behind it; `what` is its member in the message.  CALM_EFORMAT: it is no
 * string.  CALM_ENOMEM. */
calm_status calm_tokenizer_copy_string(calm_ctx *ctx, calm_arena *arena, const char *where, const char *what,
                                       const calm_json *json, calm_piece *out);

/* Copy the string member `key`, which must be one character, to tok->arena.  CALM_EFORMAT, CALM_ENOMEM. */
calm_status calm_tokenizer_read_character(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                                          const char *key, calm_piece *out);

/* Read a pattern: {"Regex": "..."}, or {"String": "..."}, which is matched literally.  CALM_EFORMAT: neither, or both;
 * else as calm_regex_new. */
calm_status calm_tokenizer_read_pattern(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                                        calm_pattern *out);

/* Make `piece` (borrowed from tok->arena) the token of `id`.  CALM_EFORMAT: the id is CALM_TOKENIZER_MAX_IDS or more,
 * or has a token already.  CALM_ENOMEM. */
calm_status calm_tokenizer_set_token(calm_ctx *ctx, calm_tokenizer *tok, const char *where, uint64_t id,
                                     calm_piece piece);

/* Read the vocabulary {"token": id, ...} into tok->vocab and the table of tokens.  CALM_EFORMAT, CALM_ENOMEM. */
calm_status calm_tokenizer_read_vocab(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *vocab);

/* Metaspace's members: its character, when it is put in front, whether the piece is split at it. */
calm_status calm_tokenizer_read_metaspace(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                                          calm_piece *replacement, calm_prepend *prepend, bool *split);

/* The readers of the file's members, each in its own source file. */
calm_tokenizer_reader calm_tokenizer_read_normalizer;
calm_tokenizer_reader calm_tokenizer_read_pretokenizer;

/* The readers of parts that have a source file of their own. */
calm_tokenizer_reader calm_tokenizer_read_bert_normalizer;
calm_tokenizer_reader calm_tokenizer_read_precompiled;
calm_tokenizer_reader calm_tokenizer_read_metaspace_splitter;
calm_tokenizer_reader calm_tokenizer_read_bpe;
calm_tokenizer_reader calm_tokenizer_read_wordpiece;
calm_tokenizer_reader calm_tokenizer_read_unigram;
calm_tokenizer_reader calm_tokenizer_read_added;        /* after the normalizers and the model */
calm_tokenizer_reader calm_tokenizer_read_template;     /* after the model and the added tokens */
calm_tokenizer_reader calm_tokenizer_read_decoder;

/* ---- encoding ---- */

/* Where the search for added tokens stands in a text. */
typedef struct calm_added_cursor {
    const calm_added_set *set;
    calm_piece text;
    size_t searched, done;    /* first byte not yet searched; first byte not yet handed out */
    bool ended;
} calm_added_cursor;

/* The next piece before an added token, maybe empty, and the token's id; the last one comes with CALM_NO_TOKEN.
 * False after that. */
bool calm_added_next(calm_added_cursor *cursor, calm_piece *gap, uint32_t *id);

/* Run all normalizers.  text->piece stays or is in ctx->scratch.  CALM_EFORMAT when a pattern passes its limits,
 * CALM_EARG when the text grows beyond CALM_TOKENIZER_MAX_TEXT. */
calm_status calm_tokenizer_normalize(calm_ctx *ctx, const calm_tokenizer *tok, calm_normal *text);

/* ---- bytes ---- */

/* Bytes that grow in ctx->scratch. */
typedef struct calm_bytes {
    char *data;
    size_t n, capacity;
} calm_bytes;

/* Make room for `more` bytes behind bytes->data + bytes->n.  CALM_ENOMEM; CALM_EARG at CALM_TOKENIZER_MAX_TEXT. */
calm_status calm_bytes_reserve(calm_ctx *ctx, calm_bytes *bytes, size_t more);

/* Append. */
calm_status calm_bytes_add(calm_ctx *ctx, calm_bytes *bytes, const char *text, size_t n);

/* What is there, as a piece. */
calm_piece calm_bytes_piece(const calm_bytes *bytes);

/* Append `in` with each match replaced by `content`; *at_front: a match was at its front and left nothing there. */
calm_status calm_bytes_replace(calm_ctx *ctx, calm_bytes *bytes, const calm_pattern *pattern, calm_piece in,
                               calm_piece content, bool *at_front);

/* ---- white space ---- */

/* End of the white space that begins at byte `at`; `at` where there is none. */
size_t calm_skip_spaces(calm_piece text, size_t at);

/* Beginning of the white space that ends at byte `at`, at the earliest `floor`; `at` where there is none. */
size_t calm_skip_spaces_back(calm_piece text, size_t at, size_t floor);

/* ---- patterns ---- */

/* The next match in `text` at or after byte `offset`; the matcher is the regex's, NULL without one.
 * CALM_EFORMAT when the search passes its limits. */
calm_status calm_pattern_find(calm_ctx *ctx, const calm_pattern *pattern, calm_matcher *matcher, calm_piece text,
                              size_t offset, bool *found, size_t *begin, size_t *end);

#endif
