/* Text: a growing string on the heap, for writers of JSON, tables and canonical forms. */
#pragma once

#include "ptq/base/context.h"

typedef struct calm_text {
    char *data;           /* NUL-terminated; NULL before the first append */
    size_t length, capacity;
    bool failed;          /* an append ran out of memory; later appends do nothing */
} calm_text;

/* An empty text; clear frees its memory and makes it empty again. */
void calm_text_init(calm_text *text);
void calm_text_clear(calm_text *text);

/* Append bytes or a formatted string.  Failure is remembered in `failed` and checked once at the end. */
void calm_text_append(calm_text *text, const char *bytes, size_t n_bytes);
void calm_text_printf(calm_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Append a number with the fewest digits, from `least` (1 to 17) on, that read back the same. */
void calm_text_number(calm_text *text, double value, int least);

/* The digits that calm_text_number takes. */
int calm_digits_needed(double value, int least);

/* CALM_ENOMEM when an append failed. */
calm_status calm_text_check(calm_ctx *ctx, const calm_text *text);

/* Move the text, with a NUL behind it, to `arena`; on failure *out is NULL.  The text is cleared, also on failure.
 * n: its bytes, which may hold zeros; may be NULL.  CALM_ENOMEM when an append has failed, or the copy does. */
calm_status calm_text_take(calm_ctx *ctx, calm_arena *arena, calm_text *text, calm_string_out out, size_t *n);

/* The name in `names` [n] nearest to `word` by Levenshtein distance, of equally near ones the first; NULL when every
 * distance is above a third of the longer word, rounded up.  Of each word 63 bytes are read. */
const char *calm_nearest(const char *word, const char *const *names, size_t n);

/* Is `end` the end of `text`, or all of it? */
bool calm_text_ends_with(const char *text, const char *end);

/* "up_proj" of "mlp.up_proj": what is behind the last dot. */
const char *calm_text_last_word(const char *text);

/* Is `word` one of the words of `list`, which are joined by `separator`?  Of NULL there are none. */
bool calm_text_listed(const char *list, char separator, const char *word);

/* Parse "2GB", "1.5GiB", "800M", at least 1 MB, into bytes; `key` is whose value it is, for the message.  CALM_EARG. */
calm_status calm_size_parse(calm_ctx *ctx, const char *key, const char *text, size_t *out);

/* The same of files, which may be as small as 1 KB. */
calm_status calm_size_parse_file(calm_ctx *ctx, const char *key, const char *text, size_t *out);
