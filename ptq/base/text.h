/* A growing string on the heap, for writers of JSON, tables and canonical forms. */
#pragma once

#include "ptq/base/context.h"

typedef struct calm_text {
    char *data;           /* NUL-terminated; NULL before the first append */
    size_t length, capacity;
    bool failed;          /* an append ran out of memory; later appends do nothing */
} calm_text;

/* calm_text_init makes an empty text; calm_text_clear frees its memory and makes it empty. */
void calm_text_init(calm_text *text);
void calm_text_clear(calm_text *text);

/* Append bytes or a formatted string.  A failed allocation sets `failed`, which callers check once at the end. */
void calm_text_append(calm_text *text, const char *bytes, size_t n_bytes);
void calm_text_printf(calm_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Appends a number with the fewest digits, at least `least` (1 to 17), that read back the same. */
void calm_text_number(calm_text *text, double value, int least);

/* Returns the number of digits that calm_text_number uses. */
int calm_digits_needed(double value, int least);

/* Fails with CALM_ENOMEM if an append failed. */
calm_status calm_text_check(calm_ctx *ctx, const calm_text *text);

/* Moves the text, NUL-terminated, to `arena`, and clears it, also on failure; *out is then NULL.  *n: its bytes,
 * which may contain zeros; `n` may be NULL.  CALM_ENOMEM: an append or the copy failed. */
calm_status calm_text_take(calm_ctx *ctx, calm_arena *arena, calm_text *text, calm_string_out out, size_t *n);

/* Returns the name in `names` [n] nearest to `word` by Levenshtein distance, the first of several; NULL if every
 * distance exceeds a third of the longer word, rounded up.  Only the first 63 bytes of a word count. */
const char *calm_nearest(const char *word, const char *const *names, size_t n);

/* Returns whether `text` ends with `end`. */
bool calm_text_ends_with(const char *text, const char *end);

/* Returns the part behind the last dot: "up_proj" of "mlp.up_proj". */
const char *calm_text_last_word(const char *text);

/* Returns whether `word` is in `list`, words joined by `separator`.  NULL is an empty list. */
bool calm_text_listed(const char *list, char separator, const char *word);

/* Parses a size such as "2GB", "1.5GiB" or "800M", at least 1 MB, into bytes; `key` names the value in the message.
 * CALM_EARG. */
calm_status calm_size_parse(calm_ctx *ctx, const char *key, const char *text, size_t *out);

/* Does the same for sizes of files, from CALM_FILE_BYTES_MIN to CALM_FILE_BYTES_MAX. */
#define CALM_FILE_BYTES_MIN 1000LL
#define CALM_FILE_BYTES_MAX 1000000000000000LL
#define CALM_FILE_BITS_MAX  32    /* bits per weight that a recipe may ask of a file */
#define CALM_BUDGET_MAX     32    /* mean bits of weights that it may ask, and of activations */
#define CALM_ACT_BUDGET_MAX 16
calm_status calm_size_parse_file(calm_ctx *ctx, const char *key, const char *text, size_t *out);
