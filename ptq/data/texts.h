/* Texts of a file, one by one, and their token ids.
 *
 * The contents of a file, and otherwise its name, determine its format:
 *
 *   JSON array   of {"text": ...} or of strings: its documents
 *   JSON lines   a document per line: {"text": ...} or a string.  Blank lines are skipped.  Also every .jsonl file
 *   text         everything else.  CR LF is read as LF
 *
 * A document may be a chat (chat_messages.h).  gzip files are decompressed, and named without ".gz".  A byte order
 * mark is skipped, a lone surrogate becomes U+FFFD. */
#pragma once

#include "ptq/base/file.h"
#include "ptq/data/chat.h"
#include "ptq/io/json.h"
#include "ptq/text/lines.h"
#include "ptq/tokenizer/tokenizer.h"

typedef struct calm_texts {
    const char *path;                 /* borrowed */
    calm_mapping map;                 /* the whole file */
    const char *text;                 /* [n] in the mapping or in `copy` */
    size_t n;
    calm_text unzipped;               /* contents of a compressed file */
    calm_text copy;                   /* text that differs from the file's bytes */
    calm_chat *chat;                  /* renderer of chats, set by the caller; NULL: chats are refused            */
    calm_text rendered;               /* text of the last chat */
    bool is_chat;                     /* the last document was a chat: special tokens are in its text   */
    calm_lines lines;                 /* lines.number: number of the last line */
    bool is_json;                     /* the file has documents, not running text */
    calm_json *json;                  /* the last line, if it was JSON        */
    calm_json *whole;                 /* the file as one JSON value; NULL: it is JSON lines or text */
    size_t n_read;                    /* documents of `whole` that were read */
    char where[CALM_MESSAGE_MAX];     /* place of the last document, "FILE: line N" or "FILE: document N"; initially
                                       * the file */
} calm_texts;

/* Opens a file of at most `limit` bytes.  Close it also after a failure.  CALM_ENOTFOUND, CALM_EIO, CALM_EFORMAT;
 * CALM_EARG: a format that is not text (calm_raw_text_check), or a file that begins like JSON and is not valid
 * JSON. */
calm_status calm_texts_open(calm_ctx *ctx, const char *path, size_t limit, calm_texts *out);

/* Opens a file of JSON lines with any values, for calm_texts_next_json. */
calm_status calm_texts_open_json(calm_ctx *ctx, const char *path, size_t limit, calm_texts *out);
void calm_texts_close(calm_texts *texts);

/* Reads the JSON value of the next line, of at most `line_max` bytes (0: any), valid until the next call; NULL at
 * the end.  CALM_EFORMAT: a line that is too long or not JSON. */
calm_status calm_texts_next_json(calm_ctx *ctx, calm_texts *texts, size_t line_max, const calm_json **out);

/* Reads the next JSON document, or the next line of running text, without carriage returns at its end.  `text` [*n]
 * is valid until the next call; NULL at the end.  CALM_EFORMAT: a line that is not JSON, or a document without a
 * text, whose keys the message lists; else as calm_chat_render. */
calm_status calm_texts_next(calm_ctx *ctx, calm_texts *texts, const char **text, size_t *n);

/* Encodes a text as calm_tokenizer_encode does, with ids in `arena`; prefixes failures with `where`. */
calm_status calm_texts_encode(calm_ctx *ctx, calm_arena *arena, const calm_tokenizer *tokenizer, const char *where,
                              const char *text, size_t n_bytes, bool special, uint32_t **ids, size_t *n);

/* Fails with CALM_EFORMAT if one of ids [n] is at or above `vocab` (0: not checked). */
calm_status calm_texts_check_ids(calm_ctx *ctx, const char *where, const uint32_t *ids, size_t n, size_t vocab);
