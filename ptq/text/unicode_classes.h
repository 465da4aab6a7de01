/* Character classes in the Unicode versions that the Hugging Face tokenizers library was built with.
 *
 * The library uses several Rust packages with tables of Unicode 8, 9 and 16, in which newer characters are
 * unassigned.  Token ids depend on those tables, so calm has copies. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define CALM_UNICODE_FIRST_MARK 0x300    /* no character below is a combining mark */

/* Returns whether the character is punctuation (P*), or one of the ASCII symbols that BERT counts as such: $ + < =
 * > ^ ` | ~ (Unicode 8). */
bool calm_unicode_is_punctuation(uint32_t character);

/* Returns whether the character is control, format or private use, except tab, newline and carriage return; or
 * U+0000 or U+FFFD (Unicode 8). */
bool calm_unicode_is_other(uint32_t character);

/* Returns whether the character is a nonspacing mark, Mn (Unicode 8), or one of the few that decompose to nothing
 * else. */
bool calm_unicode_is_nonspacing(uint32_t character);

/* Returns whether the character is a mark, M* (Unicode 9). */
bool calm_unicode_is_mark(uint32_t character);

/* Return whether the character is a word character, or a number, since Unicode 15.1 or 16. */
bool calm_unicode_is_late_word(uint32_t character);
bool calm_unicode_is_late_number(uint32_t character);

/* Returns whether the character has a decomposition that is newer than the library's tables. */
bool calm_unicode_stays_whole(uint32_t character);

/* Returns whether BERT counts the character as an ideograph, which it puts between spaces. */
bool calm_unicode_is_ideograph(uint32_t character);
