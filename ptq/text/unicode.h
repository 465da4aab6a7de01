/* Unicode: UTF-8 validation and decoding, normalization forms, character classes; the only user of utf8proc.
 *
 * Where the tables of the Hugging Face tokenizers library differ from the system's, the library's are used
 * (unicode_classes.h). */
#pragma once

#include <stdint.h>

#include "ptq/base/context.h"
#include "ptq/base/text.h"

#define CALM_UTF8_MAX 4    /* bytes of the longest encoded character */

/* Returns the offset of the first byte of `text` [n] that is not part of well-formed UTF-8 (overlong forms,
 * surrogates and values above U+10FFFF are not); n if the text is well-formed. */
size_t calm_utf8_invalid_at(const char *text, size_t n);

/* Decodes the first character of `text`, which must be well-formed and not empty; returns its length in bytes. */
size_t calm_utf8_decode(const char *text, uint32_t *out);

/* Returns the offset of the character of well-formed `text` that ends at byte `at` > 0. */
size_t calm_utf8_step_back(const char *text, size_t at);

/* Returns the number of characters of well-formed `text` [n]. */
size_t calm_utf8_count(const char *text, size_t n);

/* Encodes a character below U+110000; returns its length in bytes. */
size_t calm_utf8_encode(uint32_t character, char out[CALM_UTF8_MAX]);

/* Appends `text` [n] with each ill-formed sequence (the longest incomplete prefix of a character, or one byte)
 * replaced by U+FFFD: the practice of the Unicode Standard, section 3.9. */
void calm_utf8_repair(const char *text, size_t n, calm_text *out);

typedef enum calm_unicode_form { CALM_NFC, CALM_NFD, CALM_NFKC, CALM_NFKD } calm_unicode_form;

/* Computes a normalization form (UAX #15) of well-formed `text` [n].
 *
 *   out  [*n_out]  `text` itself if it does not change, else bytes in ctx->scratch
 *
 * Runs that cannot change are copied, so ASCII costs one scan; marks are sorted in linear time, so no text is slow.
 * CALM_ENOMEM. */
calm_status calm_unicode_normalize(calm_ctx *ctx, calm_unicode_form form, const char *text, size_t n, const char **out,
                                   size_t *n_out);

/* Computes the lower case of one character, without context (U+0130 becomes two characters); returns their number. */
size_t calm_unicode_lower(uint32_t character, uint32_t out[2]);

/* Returns the upper case of a character; the character itself if its upper case is several characters. */
uint32_t calm_unicode_upper(uint32_t character);

/* Returns the bytes of the first extended grapheme cluster (UAX #29) of well-formed `text` [n], n > 0. */
size_t calm_unicode_grapheme(const char *text, size_t n);

/* Returns the White_Space property, which added tokens strip and \s matches. */
bool calm_unicode_is_space(uint32_t character);

/* Returns whether the character is a word character (UTS #18, annex C): alphabetic, mark, decimal number, connector
 * or join control. */
bool calm_unicode_is_word(uint32_t character);

/* Returns whether the character is a number of any script: decimal, letter or other (N*). */
bool calm_unicode_is_number(uint32_t character);

/* Returns whether reports escape the character: control, format, private-use, unassigned, or a line separator. */
bool calm_unicode_is_unprintable(uint32_t character);

/* Returns the columns of a character on a terminal: 0 for marks, 2 for wide characters, else 1. */
int calm_unicode_columns(uint32_t character);
