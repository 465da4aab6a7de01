/* Inside of the tokenizer: what its source files share.  Callers use tokenizer.h.
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
 *   tokenizer_parts.c  tokenizer_bytes.c           what their readers share; bytes, white space, patterns
 *
 * Each kind of part has one table of types: a new part is one function that does the work, one row that names it, and a
 * reader where the part has members. */
#pragma once

#include "ptq/io/json.h"
#include "ptq/text/regex.h"
#include "ptq/tokenizer/tokenizer.h"
#include "ptq/text/unicode.h"
#include "ptq/tokenizer/vocab.h"

/* Ids are below this; the largest vocabularies of today have 2^18. */
#define CALM_TOKENIZER_MAX_IDS (UINT32_C(1) << 22)

/* Most parts of a chain; a Sequence counts as its parts. */
#define CALM_TOKENIZER_MAX_PARTS 16

/* Bytes of a text, also after the normalizers, are fewer: positions fit 32 bits with a margin. */
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
    bool added;           /* listed in added_tokens: its text is taken as it is     */
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
    bool beheaded;        /* its first characters were taken away: it begins behind the start of the text */
} calm_normal;

/* What Replace and Split look for. */
typedef struct calm_pattern {
    calm_piece literal;   /* n > 0: these bytes                  */
    calm_regex *regex;    /* owned; looked for otherwise         */
    bool (*is_match)(uint32_t character);    /* with neither of them: each such character by itself */
} calm_pattern;

typedef enum calm_split_behavior {
    CALM_SPLIT_ISOLATED, CALM_SPLIT_REMOVED, CALM_SPLIT_MERGED_WITH_PREVIOUS, CALM_SPLIT_MERGED_WITH_NEXT,
    CALM_SPLIT_CONTIGUOUS
} calm_split_behavior;

/* When Metaspace puts its character before a piece. */
typedef enum calm_prepend { CALM_PREPEND_NEVER, CALM_PREPEND_FIRST, CALM_PREPEND_ALWAYS } calm_prepend;

/* A normalizer, pre-tokenizer or decoder: the function that does its work, and the members that this one reads. */
typedef struct calm_token_part calm_token_part;
struct calm_token_part {
    /* Normalizer: changes *text; new bytes go to ctx->scratch. */
    calm_status (*normalize)(calm_ctx *ctx, const calm_token_part *self, calm_normal *text);
    /* Pre-tokenizer: passes each piece of `in` to calm_encoder_pass(enc, index + 1, piece), in order. */
    calm_status (*split)(calm_encoder *enc, size_t index, calm_piece in);
    /* Decoder: changes pieces [*n], well-formed UTF-8 each, in place; new texts go to ctx->scratch. */
    calm_status (*decode)(calm_ctx *ctx, const calm_token_part *self, calm_piece *pieces, size_t *n);
    calm_pattern pattern;     /* Replace, Split, and all that look for something fixed */
    calm_piece content;       /* Replace: the new text; Prepend, Strip, WordPiece: theirs; Metaspace: its character */
    const void *data;         /* of the kind */
    unsigned flags;           /* of the kind */
    size_t start, stop;       /* Strip of decoders: how many are cut off at most */
    calm_split_behavior behavior;
    bool invert;              /* Split: what does not match is the match */
    bool whole;               /* the piece is not split */
    calm_prepend prepend;     /* ByteLevel: a space; Metaspace: its character */
};

/* The parts of one kind, which run in order. */
typedef struct calm_token_chain {
    calm_token_part of[CALM_TOKENIZER_MAX_PARTS];
    size_t n;
} calm_token_chain;

typedef struct calm_token_ids {
    uint32_t *of;         /* [n] */
    size_t n;
} calm_token_ids;

struct calm_tokenizer {
    calm_arena arena;     /* all below, unless noted */
    const char *path;

    calm_token *tokens;   /* [n_ids] by id; on the heap, because it grows */
    size_t n_ids, ids_capacity;
    calm_text shown;      /* human-readable texts, each with its NUL */

    calm_added_set raw, normalized;    /* added tokens to find before and after the normalizers */

    calm_token_chain normalizers, pretokenizers, decoders;
    bool byte_level;      /* the model sees pieces spelled in the byte-level alphabet */
    calm_vocab vocab;     /* of the model, without added tokens */
    const void *model;    /* data of the model's kind */
    /* Appends the ids of one piece, not empty, with calm_encoder_put. */
    calm_status (*encode)(calm_encoder *enc, calm_piece piece);
    /* The first place after byte `from` where a piece may be cut without changing the ids, or piece.n; NULL: none. */
    size_t (*cut)(const calm_tokenizer *tok, calm_piece piece, size_t from);

    calm_token_ids before, after;    /* special tokens of the template */
};

/* ---- reading ---- */

/* `where` is "FILE: place" of `json`; messages begin with it. */
typedef calm_status calm_tokenizer_reader(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json);

/* Reads the members of a new part of a chain. */
typedef calm_status calm_token_part_reader(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                                           calm_token_part *part);

/* A type of part: of a chain, or (models, post-processors) one with its own reader. */
typedef struct calm_tokenizer_type {
    const char *name;                 /* NULL ends a table */
    calm_token_part start;            /* what all parts of the type begin with */
    calm_token_part_reader *fill;     /* NULL: there is nothing to read */
    calm_tokenizer_reader *read;      /* without a chain; NULL: the type does nothing here */
} calm_tokenizer_type;

/* Append the part `json` to `chain` (NULL: the kind has none); its "type" names a row of `types`.  Of a Sequence each
 * part of its array `list` is appended (NULL: the kind has no Sequences).  JSON null is no part.
 * CALM_EUNSUPPORTED: a type without a row, with the known ones, or a full chain.  CALM_EFORMAT; else as the reader. */
calm_status calm_tokenizer_read_parts(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                                      const char *list, const calm_tokenizer_type *types, calm_token_chain *chain);

/* Append a copy of `start` to a chain.  CALM_EUNSUPPORTED: it has CALM_TOKENIZER_MAX_PARTS already, or is that of the
 * pre-tokenizers and ends with ByteLevel. */
calm_status calm_tokenizer_add_part(calm_ctx *ctx, calm_tokenizer *tok, const char *where, calm_token_chain *chain,
                                    const calm_token_part *start, calm_token_part **out);

/* Copy the string member `key` to tok->arena, with a NUL behind it.  CALM_EFORMAT: it is no string.  CALM_ENOMEM. */
calm_status calm_tokenizer_read_string(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                                       const char *key, calm_piece *out);

/* The same for a string that must be one character. */
calm_status calm_tokenizer_read_character(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                                          const char *key, calm_piece *out);

/* Read the member "pattern": {"Regex": "..."}, or {"String": "..."}, which is matched literally.  CALM_EFORMAT:
 * neither, or both; else as calm_regex_new. */
calm_status calm_tokenizer_read_pattern(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                                        calm_pattern *out);

/* Members that several kinds have: Replace's pattern and content; Metaspace's character, when it is put in front, and
 * whether pieces are split at it. */
calm_token_part_reader calm_tokenizer_read_replace;
calm_token_part_reader calm_tokenizer_read_metaspace;

/* Make `piece` (borrowed from tok->arena) the token of `id`.  CALM_EFORMAT: the id is CALM_TOKENIZER_MAX_IDS or more,
 * or has a token already.  CALM_ENOMEM. */
calm_status calm_tokenizer_set_token(calm_ctx *ctx, calm_tokenizer *tok, const char *where, uint64_t id,
                                     calm_piece piece);

/* Read the model's vocabulary, "vocab": {"token": id, ...}, into tok->vocab and the table of tokens.  CALM_EFORMAT,
 * CALM_ENOMEM. */
calm_tokenizer_reader calm_tokenizer_read_vocab;

/* The id of the model's "unk_token"; CALM_NO_TOKEN where it has none.  CALM_EFORMAT: `required` and none, or one that
 * the vocabulary does not have. */
calm_status calm_tokenizer_read_unknown(calm_ctx *ctx, const calm_tokenizer *tok, const char *where,
                                        const calm_json *json, bool required, uint32_t *out);

/* Ids of the tokens <0x00> ... <0xFF>, CALM_NO_TOKEN where the vocabulary has none: what unknown characters fall back
 * to. */
void calm_tokenizer_find_bytes(const calm_tokenizer *tok, uint32_t ids[256]);

/* Bytes of the longest token. */
size_t calm_tokenizer_longest(const calm_tokenizer *tok);

/* The readers of the file's members, each in its own source file. */
calm_tokenizer_reader calm_tokenizer_read_normalizer;
calm_tokenizer_reader calm_tokenizer_read_pretokenizer;

/* The readers of parts that have a separate source file. */
calm_token_part_reader calm_tokenizer_read_bert_normalizer;
calm_token_part_reader calm_tokenizer_read_lowercase;
calm_token_part_reader calm_tokenizer_read_precompiled;
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

/* Does `text` begin with `prefix`?  Are two pieces the same? */
bool calm_piece_begins(calm_piece text, calm_piece prefix);
bool calm_piece_equal(calm_piece a, calm_piece b);

/* Append `in` with each match replaced by `content`; *at_front: a match was at its front and left nothing there. */
calm_status calm_bytes_replace(calm_ctx *ctx, calm_bytes *bytes, const calm_pattern *pattern, calm_piece in,
                               calm_piece content, bool *at_front);

/* ---- white space ---- */

/* End of the white space that begins at byte `at`; `at` where there is none. */
size_t calm_skip_spaces(calm_piece text, size_t at);

/* Beginning of the white space that ends at byte `at`, at the earliest `floor`; `at` where there is none. */
size_t calm_skip_spaces_back(calm_piece text, size_t at, size_t floor);

/* ---- patterns ---- */

/* A walk over the matches in a text, from left to right; zero but for the first three to begin with. */
typedef struct calm_pattern_walk {
    const calm_pattern *pattern;
    calm_matcher *matcher;    /* the regex's; NULL without one */
    calm_piece text;
    size_t begin, end;        /* the match */
    size_t before;            /* end of the one before it, 0 of the first */
    size_t offset;            /* where the search continues */
    bool any;                 /* a match was found */
} calm_pattern_walk;

/* The next match; at the end *found is false, and `end` stays that of the last match.  An empty match counts too,
 * except where the match before it ends.  CALM_EFORMAT when the search passes its limits. */
calm_status calm_pattern_next(calm_ctx *ctx, calm_pattern_walk *walk, bool *found);
