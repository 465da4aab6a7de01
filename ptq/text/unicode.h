/* Unicode: UTF-8 checked and decoded, normalization forms, classes of characters; the only user of utf8proc.
 *
 * Where the tables of the Hugging Face tokenizers library differ from the system's, the library's count
 * (unicode_classes.h). */
#pragma once

#include <stdint.h>

#include "ptq/base/context.h"
#include "ptq/base/text.h"

#define CALM_UTF8_MAX 4    /* bytes of the longest encoded character */

/* Offset of the first byte of `text` [n] that is not part of well-formed UTF-8 (overlong forms, surrogates and
 * values above U+10FFFF are not); n when all is well. */
size_t calm_utf8_invalid_at(const char *text, size_t n);

/* Decode the first character of `text`, which must be well-formed and not empty; its length in bytes. */
size_t calm_utf8_decode(const char *text, uint32_t *out);

/* Offset of the character of well-formed `text` that ends at byte `at` > 0. */
size_t calm_utf8_step_back(const char *text, size_t at);

/* Characters of well-formed `text` [n]. */
size_t calm_utf8_count(const char *text, size_t n);

/* Encode a character below U+110000; its length in bytes. */
size_t calm_utf8_encode(uint32_t character, char out[CALM_UTF8_MAX]);

/* Append `text` [n] with each ill-formed sequence (the longest prefix of a character that breaks off, or one
 * byte) replaced by U+FFFD: the practice of the Unicode Standard, section 3.9. */
void calm_utf8_repair(const char *text, size_t n, calm_text *out);

typedef enum calm_unicode_form { CALM_NFC, CALM_NFD, CALM_NFKC, CALM_NFKD } calm_unicode_form;

/* A normalization form (UAX #15) of well-formed `text` [n].
 *
 *   out  [*n_out]  `text` itself when nothing changes, else bytes in ctx->scratch
 *
 * Runs that cannot change are copied, so ASCII costs a scan; marks are sorted in linear time, so no text makes it slow.
 * Fails with CALM_ENOMEM. */
calm_status calm_unicode_normalize(calm_ctx *ctx, calm_unicode_form form, const char *text, size_t n, const char **out,
                                   size_t *n_out);

/* Lower case of one character by itself (U+0130 becomes two); their number. */
size_t calm_unicode_lower(uint32_t character, uint32_t out[2]);

/* Upper case of one character where it is one character, else the character itself. */
uint32_t calm_unicode_upper(uint32_t character);

/* Bytes of the first extended grapheme cluster (UAX #29) of well-formed `text` [n], n > 0. */
size_t calm_unicode_grapheme(const char *text, size_t n);

/* White_Space property: what added tokens strip, and \s in patterns. */
bool calm_unicode_is_space(uint32_t character);

/* A word character (UTS #18, annex C): alphabetic, mark, decimal number, connector or join control. */
bool calm_unicode_is_word(uint32_t character);

/* A number of any script: decimal, letter or other (N*). */
bool calm_unicode_is_number(uint32_t character);

/* Control, format, private-use, unassigned, or a line separator: escaped in reports. */
bool calm_unicode_is_unprintable(uint32_t character);

/* Columns that a character takes on a terminal: 0 for marks, 2 for wide ones, else 1. */
int calm_unicode_columns(uint32_t character);
