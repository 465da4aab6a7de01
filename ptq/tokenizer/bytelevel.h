/* The byte-level alphabet of GPT-2: 256 printable characters that represent the 256 bytes in vocabularies.
 *
 *   bytes 21-7E, A1-AC, AE-FF   the character of the same number
 *   the others, in order        U+0100, U+0101, ... U+0143   (a space, 20, is U+0120)
 *
 * Source: bytes_to_unicode in the GPT-2 release (openai/gpt-2, src/encoder.py). */
#pragma once

#include <stdint.h>

#include "ptq/base/context.h"

/* All characters of the alphabet are below this one, and take at most two bytes in UTF-8. */
#define CALM_BYTELEVEL_END 0x144

/* Encodes bytes `in` [n] in the alphabet into out [2 n]; returns the bytes written. */
size_t calm_bytelevel_spell(const char *in, size_t n, char *out);

/* Decodes well-formed UTF-8 `in` [n] into the bytes that it represents, out [n]; returns the bytes written.  A text
 * with any character outside the alphabet is copied unchanged. */
size_t calm_bytelevel_read(const char *in, size_t n, char *out);
