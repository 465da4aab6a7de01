/* Classes of characters in the versions of Unicode that the Hugging Face tokenizers library was built from.
 *
 * The library draws on several Rust packages whose tables are of Unicode 8, 9 and 16; a character that is newer than a
 * table is unassigned to it.  Token ids depend on those tables, so they are kept here. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define CALM_UNICODE_FIRST_MARK 0x300    /* no character below is a combining mark */

/* Punctuation (P*), and the ASCII symbols that BERT counts as such: $ + < = > ^ ` | ~ (Unicode 8). */
bool calm_unicode_is_punctuation(uint32_t character);

/* Control, format and private use but for tab, newline and carriage return; U+0000 and U+FFFD (Unicode 8). */
bool calm_unicode_is_other(uint32_t character);

/* A nonspacing mark, Mn (Unicode 8), and the few characters that decompose to nothing else. */
bool calm_unicode_is_nonspacing(uint32_t character);

/* A mark, M* (Unicode 9). */
bool calm_unicode_is_mark(uint32_t character);

/* A word character, or a number, since Unicode 15.1 or 16. */
bool calm_unicode_is_late_word(uint32_t character);
bool calm_unicode_is_late_number(uint32_t character);

/* Has a decomposition that is newer than the library's tables. */
bool calm_unicode_stays_whole(uint32_t character);

/* An ideograph to BERT: put on its own between spaces. */
bool calm_unicode_is_ideograph(uint32_t character);
