/* Lossless compression of the exponents of nearly Gaussian numbers: bfloat16 or float32 words in about .67 or .84
 * of their bytes (after ZipCCL, which compresses the messages of collectives).
 *
 *   "CALMEXP1" | u8 coded (0: words uncompressed) | u8 bytes of a word | u8 top | 5 bytes of 0 | u64 words
 *   | u64 bytes, with this header | u64 lengths, nibble s: length of symbol s | blocks of 2^14 words, or the words
 *   | 8 bytes of 0
 *   block: u16 bytes of each of 4 streams | u16 escapes | u8 [n] sign and upper 7 bits of the mantissa
 *   | for float32 u16 [n] the other 16 | u16 [escapes] places, ascending | u8 [escapes] exponents there
 *   | streams, each of a quarter of the words
 *
 * All little-endian.  Symbol s < 15 is exponent top - s, 15 any other (an escape).  The lengths define a canonical
 * prefix code of at most 11 bits, stored from the lowest bit on.  It is one of 8 codes for a Gaussian, selected by
 * the fraction of log2 of its standard deviation, which is estimated from the mean of log2 |x| of 1,024 words: E
 * log2 |N(0, 1)| = -.9163. */
#pragma once

#include <stdbool.h>

#include "ptq/base/context.h"

/* Returns the largest size of n encoded words of 2 or 4 bytes: the words, header and trailer. */
size_t calm_exponent_code_most(size_t n, size_t word_bytes);

/* Encodes words [n] of bfloat16 (word_bytes 2) or float32 (4), any bits, into out [calm_exponent_code_most]:
 * compressed if that is shorter, else (or with `plain`) uncompressed.  Returns the bytes written. */
size_t calm_exponent_encode(const void *words, size_t n, size_t word_bytes, bool plain, void *out);

/* Decodes `bytes` to words [n]; n_bytes may exceed the size that the code states.  CALM_EFORMAT: not a code of n
 * words of this size; `name` appears in the message. */
calm_status calm_exponent_decode(calm_ctx *ctx, const char *name, const void *bytes, size_t n_bytes, size_t n,
                                 size_t word_bytes, void *words);
