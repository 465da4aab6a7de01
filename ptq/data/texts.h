/* Texts of a file, one by one, and their token ids.
 *
 * The bytes decide what the file is, and its name where they do not:
 *
 *   JSON array   of {"text": ...} or of strings: its documents
 *   JSON lines   a document in each: {"text": ...} or a string.  Blank lines are skipped.  Also every .jsonl file
 *   text         all else.  CR LF is LF
 *
 * A document may be a chat (chat_messages.h).  gzip is read as what it holds, under the name without ".gz".  A byte
 * order mark is skipped, a lone surrogate is U+FFFD. */
#pragma once

#include "ptq/base/file.h"
#include "ptq/data/chat.h"
#include "ptq/io/json.h"
#include "ptq/text/lines.h"
#include "ptq/tokenizer/tokenizer.h"

typedef struct calm_texts {
    const char *path;                 /* borrowed */
    calm_mapping map;                 /* the whole file */
    const char *text;                 /* [n] of the mapping or of `copy` */
    size_t n;
    calm_text unzipped;               /* of a compressed file */
    calm_text copy;                   /* the text where it differs from the file */
    calm_chat *chat;                  /* what chats are rendered with, set by the caller; NULL: chats are refused */
    calm_text rendered;               /* the chat read last */
    bool is_chat;                     /* the document read last was one: special tokens are in its text */
    calm_lines lines;                 /* lines.number: of the line read last */
    bool is_json;                     /* documents, not running text */
    calm_json *json;                  /* the line read last, when it was JSON */
    calm_json *whole;                 /* the file as one JSON value; NULL: it is JSON lines or text */
    size_t n_read;                    /* documents read of `whole` */
    char where[CALM_MESSAGE_MAX];     /* "FILE: line N" or "FILE: document N" read last; before the first, the file */
} calm_texts;

/* Open a file of at most `limit` bytes.  Close it also after a failure.  CALM_ENOTFOUND, CALM_EIO, CALM_EFORMAT;
 * CALM_EARG: a format that is not text (calm_raw_text_check), or one that begins like JSON and is not valid. */
calm_status calm_texts_open(calm_ctx *ctx, const char *path, size_t limit, calm_texts *out);

/* The same for JSON lines of any kind, which calm_texts_next_json reads. */
calm_status calm_texts_open_json(calm_ctx *ctx, const char *path, size_t limit, calm_texts *out);
void calm_texts_close(calm_texts *texts);

/* The JSON value of the next line, of at most `line_max` bytes (0: any), valid until the next call; NULL at the end.
 * CALM_EFORMAT: a line that is too long or not JSON. */
calm_status calm_texts_next_json(calm_ctx *ctx, calm_texts *texts, size_t line_max, const calm_json **out);

/* The next document of JSON; of running text the next line, without carriage returns at its end.  `text` [*n] is valid
 * until the next call; NULL at the end.  CALM_EFORMAT: a line that is not JSON, or a document without a text: the
 * message names the keys that it has; else as calm_chat_render. */
calm_status calm_texts_next(calm_ctx *ctx, calm_texts *texts, const char **text, size_t *n);

/* Ids of a text, in `arena`, as calm_tokenizer_encode gives them; its failures get `where` as prefix. */
calm_status calm_texts_encode(calm_ctx *ctx, calm_arena *arena, const calm_tokenizer *tokenizer, const char *where,
                              const char *text, size_t n_bytes, bool special, uint32_t **ids, size_t *n);

/* CALM_EFORMAT when one of ids [n] is at or above `vocab` (0: not checked). */
calm_status calm_texts_check_ids(calm_ctx *ctx, const char *where, const uint32_t *ids, size_t n, size_t vocab);
