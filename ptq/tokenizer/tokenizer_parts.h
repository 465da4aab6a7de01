/* Internals that the source files of the tokenizer share.  Callers use tokenizer.h.
 *
 *   text -> [cut out added tokens] -> normalizers -> [cut out normalized added tokens] -> pre-tokenizers -> model
 *        -> ids
 *
 *   tokenizer.c                                    opening: the members of tokenizer.json
 *   tokenizer_encode.c  tokenizer_decode.c         text -> ids, ids -> text
 *   tokenizer_added.c                              added tokens
 *   tokenizer_normalize.c  _bert.c  _precompiled.c normalizers
 *   tokenizer_split.c                              pre-tokenizers
 *   tokenizer_bpe.c  _wordpiece.c  _unigram.c      models
 *   tokenizer_decoders.c  tokenizer_template.c     decoders and post-processors
 *   tokenizer_encoder.c                            pieces through pre-tokenizers to the model, and their ids
 *   tokenizer_parts.c  tokenizer_bytes.c           helpers of the readers; bytes, white space, patterns
 *
 * Each kind of part has one table of types: a new part needs one function that does the work, one row that names
 * it, and a reader if the part has members. */
#pragma once

#include "ptq/io/json.h"
#include "ptq/text/regex.h"
#include "ptq/tokenizer/tokenizer.h"
#include "ptq/text/unicode.h"
#include "ptq/tokenizer/vocab.h"

/* Exclusive upper bound of ids; today's largest vocabularies have 2^18 tokens. */
#define CALM_TOKENIZER_MAX_IDS (UINT32_C(1) << 22)

/* Largest number of parts of a chain; a Sequence counts as its parts. */
#define CALM_TOKENIZER_MAX_PARTS 16

/* Exclusive upper bound of the bytes of a text, also after the normalizers: positions fit 32 bits with a margin. */
#define CALM_TOKENIZER_MAX_TEXT ((size_t)INT32_MAX)

typedef struct calm_encoder calm_encoder;

/* A range of bytes of a text; borrowed.  `text` is never NULL. */
typedef struct calm_piece {
    const char *text;
    size_t n;
} calm_piece;

/* ---- contents of tokenizer.json ---- */

typedef struct calm_token {
    calm_piece piece;     /* as spelled in the file; text NULL: no token has this id */
    size_t shown;         /* offset in calm_tokenizer.shown                         */
    bool added;           /* listed in added_tokens: matched literally in the text  */
    bool special;
} calm_token;

typedef struct calm_added {
    calm_piece piece;     /* text to search for; normalized in the second set */
    uint32_t id;
    bool single_word, lstrip, rstrip;
} calm_added;

typedef struct calm_added_set {
    calm_added *tokens;   /* [n], sorted by bytes       */
    size_t n;
    bool begins[256];     /* some token begins with this byte */
} calm_added_set;

/* A text that passes through the normalizers. */
typedef struct calm_normal {
    calm_piece piece;
    bool beheaded;        /* its first characters were removed                                            */
} calm_normal;

/* Search pattern of Replace and Split. */
typedef struct calm_pattern {
    calm_piece literal;   /* n > 0: search for these bytes       */
    calm_regex *regex;    /* else search for this regex; owned   */
    bool (*is_match)(uint32_t character);    /* without either: each character for which it is true */
} calm_pattern;

typedef enum calm_split_behavior {
    CALM_SPLIT_ISOLATED, CALM_SPLIT_REMOVED, CALM_SPLIT_MERGED_WITH_PREVIOUS, CALM_SPLIT_MERGED_WITH_NEXT,
    CALM_SPLIT_CONTIGUOUS
} calm_split_behavior;

/* When Metaspace puts its character in front of a piece. */
typedef enum calm_prepend { CALM_PREPEND_NEVER, CALM_PREPEND_FIRST, CALM_PREPEND_ALWAYS } calm_prepend;

/* A normalizer, pre-tokenizer or decoder: its function, and its members. */
typedef struct calm_token_part calm_token_part;
struct calm_token_part {
    /* Normalizer: changes *text; new bytes go to ctx->scratch. */
    calm_status (*normalize)(calm_ctx *ctx, const calm_token_part *self, calm_normal *text);
    /* Pre-tokenizer: passes each piece of `in` to calm_encoder_pass(enc, index + 1, piece), in order. */
    calm_status (*split)(calm_encoder *enc, size_t index, calm_piece in);
    /* Decoder: changes pieces [*n], each well-formed UTF-8, in place; new texts go to ctx->scratch. */
    calm_status (*decode)(calm_ctx *ctx, const calm_token_part *self, calm_piece *pieces, size_t *n);
    calm_pattern pattern;     /* of Replace, Split, and all parts with a fixed search pattern */
    calm_piece content;       /* replacement of Replace; string of Prepend, Strip and WordPiece; character of
                               * Metaspace */
    const void *data;         /* private data of the type */
    unsigned flags;           /* private flags of the type */
    size_t start, stop;       /* decoder Strip: most characters to remove at each end */
    calm_split_behavior behavior;
    bool invert;              /* Split: the text between matches counts as the match */
    bool whole;               /* the piece is not split */
    calm_prepend prepend;     /* for ByteLevel a space, for Metaspace its character */
};

/* Parts of one kind, which run in order. */
typedef struct calm_token_chain {
    calm_token_part of[CALM_TOKENIZER_MAX_PARTS];
    size_t n;
} calm_token_chain;

typedef struct calm_token_ids {
    uint32_t *of;         /* [n] */
    size_t n;
} calm_token_ids;

struct calm_tokenizer {
    calm_arena arena;     /* owns everything below, unless noted */
    const char *path;

    calm_token *tokens;   /* [n_ids] by id; on the heap, since it grows   */
    size_t n_ids, ids_capacity;
    calm_text shown;      /* printable texts of tokens, NUL-terminated */

    calm_added_set raw, normalized;    /* added tokens that are searched for before and after the normalizers */

    calm_token_chain normalizers, pretokenizers, decoders;
    bool byte_level;      /* the model's pieces are spelled in the byte-level alphabet */
    calm_vocab vocab;     /* tokens of the model, without added tokens */
    const void *model;    /* private data of the model */
    /* Encodes one nonempty piece: appends its ids with calm_encoder_put. */
    calm_status (*encode)(calm_encoder *enc, calm_piece piece);
    /* Returns the first position after byte `from` where a piece may be cut without changing the ids, or piece.n;
     * NULL: pieces are never cut. */
    size_t (*cut)(const calm_tokenizer *tok, calm_piece piece, size_t from);

    calm_token_ids before, after;    /* special tokens of the template */
};

/* ---- reading ---- */

/* Reads a member of the file.  `where` is "FILE: place" of `json`, which begins messages. */
typedef calm_status calm_tokenizer_reader(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json);

/* Reads the members of a new part of a chain. */
typedef calm_status calm_token_part_reader(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                                           calm_token_part *part);

/* A type of part: of a chain, or (models, post-processors) one with its own reader. */
typedef struct calm_tokenizer_type {
    const char *name;                 /* NULL ends a table */
    calm_token_part start;            /* initial value of all parts of the type */
    calm_token_part_reader *fill;     /* reads further members; NULL: there are none */
    calm_tokenizer_reader *read;      /* reader of a type without a chain; NULL: the type does nothing here */
} calm_tokenizer_type;

/* Appends the part `json` to `chain` (NULL: the kind has none); its "type" names a row of `types`.  For a Sequence,
 * appends each part of its array `list` (NULL: the kind has no Sequences).  JSON null is no part.
 * CALM_EUNSUPPORTED: an unknown type (the message lists the known ones), or a full chain.  CALM_EFORMAT; else as
 * the reader. */
calm_status calm_tokenizer_read_parts(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                                      const char *list, const calm_tokenizer_type *types, calm_token_chain *chain);

/* Appends a copy of `start` to a chain.  CALM_EUNSUPPORTED: the chain is full, or it is the chain of pre-tokenizers
 * and already ends with ByteLevel. */
calm_status calm_tokenizer_add_part(calm_ctx *ctx, calm_tokenizer *tok, const char *where, calm_token_chain *chain,
                                    const calm_token_part *start, calm_token_part **out);

/* Copies the string member `key` to tok->arena, NUL-terminated.  CALM_EFORMAT: not a string.  CALM_ENOMEM. */
calm_status calm_tokenizer_read_string(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                                       const char *key, calm_piece *out);

/* Does the same for a string that must be one character. */
calm_status calm_tokenizer_read_character(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                                          const char *key, calm_piece *out);

/* Reads the member "pattern": {"Regex": "..."}, or {"String": "..."}, which is matched literally.  CALM_EFORMAT:
 * neither, or both; else as calm_regex_new. */
calm_status calm_tokenizer_read_pattern(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                                        calm_pattern *out);

/* Members that several kinds have: pattern and content of Replace; character, prepend scheme and split of
 * Metaspace. */
calm_token_part_reader calm_tokenizer_read_replace;
calm_token_part_reader calm_tokenizer_read_metaspace;

/* Makes `piece` (borrowed from tok->arena) the token of `id`.  CALM_EFORMAT: the id is CALM_TOKENIZER_MAX_IDS or
 * more, or has a token already.  CALM_ENOMEM. */
calm_status calm_tokenizer_set_token(calm_ctx *ctx, calm_tokenizer *tok, const char *where, uint64_t id,
                                     calm_piece piece);

/* Reads the model's vocabulary, "vocab": {"token": id, ...}, into tok->vocab and the table of tokens.
 * CALM_EFORMAT, CALM_ENOMEM. */
calm_tokenizer_reader calm_tokenizer_read_vocab;

/* Reads the id of the model's "unk_token"; CALM_NO_TOKEN if there is none.  CALM_EFORMAT: it is `required` and
 * missing, or not in the vocabulary. */
calm_status calm_tokenizer_read_unknown(calm_ctx *ctx, const calm_tokenizer *tok, const char *where,
                                        const calm_json *json, bool required, uint32_t *out);

/* Finds the ids of the byte-fallback tokens <0x00> ... <0xFF>; CALM_NO_TOKEN for those that the vocabulary lacks. */
void calm_tokenizer_find_bytes(const calm_tokenizer *tok, uint32_t ids[256]);

/* Returns the bytes of the longest token. */
size_t calm_tokenizer_longest(const calm_tokenizer *tok);

/* Readers of the file's members, each in a separate source file. */
calm_tokenizer_reader calm_tokenizer_read_normalizer;
calm_tokenizer_reader calm_tokenizer_read_pretokenizer;

/* Readers of parts that have a separate source file. */
calm_token_part_reader calm_tokenizer_read_bert_normalizer;
calm_token_part_reader calm_tokenizer_read_lowercase;
calm_token_part_reader calm_tokenizer_read_precompiled;
calm_tokenizer_reader calm_tokenizer_read_bpe;
calm_tokenizer_reader calm_tokenizer_read_wordpiece;
calm_tokenizer_reader calm_tokenizer_read_unigram;
calm_tokenizer_reader calm_tokenizer_read_added;        /* called after the normalizers and the model */
calm_tokenizer_reader calm_tokenizer_read_template;     /* called after the model and the added tokens */
calm_tokenizer_reader calm_tokenizer_read_decoder;

/* ---- encoding ---- */

/* State of the search for added tokens in a text. */
typedef struct calm_added_cursor {
    const calm_added_set *set;
    calm_piece text;
    size_t searched, done;    /* first byte not yet searched; first byte not yet returned   */
    bool ended;
} calm_added_cursor;

/* Returns the next added token and the text before it, which may be empty; the text after the last one comes with
 * CALM_NO_TOKEN.  False after that. */
bool calm_added_next(calm_added_cursor *cursor, calm_piece *gap, uint32_t *id);

/* Runs all normalizers.  text->piece is unchanged or is in ctx->scratch.  CALM_EFORMAT: a pattern exceeds its
 * search limits; CALM_EARG: the text grows beyond CALM_TOKENIZER_MAX_TEXT. */
calm_status calm_tokenizer_normalize(calm_ctx *ctx, const calm_tokenizer *tok, calm_normal *text);

/* ---- bytes ---- */

/* A byte buffer that grows in ctx->scratch. */
typedef struct calm_bytes {
    char *data;
    size_t n, capacity;
} calm_bytes;

/* Makes room for `more` bytes behind bytes->data + bytes->n.  CALM_ENOMEM; CALM_EARG at CALM_TOKENIZER_MAX_TEXT. */
calm_status calm_bytes_reserve(calm_ctx *ctx, calm_bytes *bytes, size_t more);

/* Appends `text` [n]. */
calm_status calm_bytes_add(calm_ctx *ctx, calm_bytes *bytes, const char *text, size_t n);

/* Returns the contents of a buffer as a piece. */
calm_piece calm_bytes_piece(const calm_bytes *bytes);

/* Return whether `text` begins with `prefix`; whether two pieces have the same bytes. */
bool calm_piece_begins(calm_piece text, calm_piece prefix);
bool calm_piece_equal(calm_piece a, calm_piece b);

/* Appends `in` with each match replaced by `content`; *at_front: a match at the beginning was replaced by nothing. */
calm_status calm_bytes_replace(calm_ctx *ctx, calm_bytes *bytes, const calm_pattern *pattern, calm_piece in,
                               calm_piece content, bool *at_front);

/* ---- white space ---- */

/* Returns the end of the white space that begins at byte `at`; `at` if there is none. */
size_t calm_skip_spaces(calm_piece text, size_t at);

/* Returns the beginning of the white space that ends at byte `at`, not before `floor`; `at` if there is none. */
size_t calm_skip_spaces_back(calm_piece text, size_t at, size_t floor);

/* ---- patterns ---- */

/* Iterator over the matches in a text, from left to right.  Initialise all but the first three members with zeros. */
typedef struct calm_pattern_walk {
    const calm_pattern *pattern;
    calm_matcher *matcher;    /* matcher of the regex; NULL without one */
    calm_piece text;
    size_t begin, end;        /* the current match */
    size_t before;            /* end of the previous match; 0 for the first */
    size_t offset;            /* position where the search continues */
    bool any;                 /* a match was found */
} calm_pattern_walk;

/* Finds the next match; at the end *found is false, and `end` stays that of the last match.  An empty match counts,
 * except at the end of the previous match.  CALM_EFORMAT: the search exceeds its limits. */
calm_status calm_pattern_next(calm_ctx *ctx, calm_pattern_walk *walk, bool *found);
