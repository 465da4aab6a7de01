/* Lossless code for the exponents of near-Gaussian numbers: words of bfloat16 or float32 in about .67 or .84 of their
 * bytes (after ZipCCL, which codes what collectives send).
 *
 *   "CALMEXP1" | u8 coded (0: words as they are) | u8 bytes of a word | u8 top | 5 bytes of 0 | u64 words
 *   | u64 bytes, with this header | u64 lengths, nibble s that of symbol s | blocks of 2^14 words, or the words
 *   | 8 bytes of 0
 *   block: u16 bytes of each of 4 streams | u16 escapes | u8 [n] sign and upper 7 bits of the mantissa
 *   | of float32 u16 [n] the other 16 | u16 [escapes] places, ascending | u8 [escapes] exponents there
 *   | streams, each of a quarter of the words
 *
 * All little-endian.  Symbol s < 15 is exponent top - s, 15 any other.  Lengths are those of a prefix code of at most
 * 11 bits, canonical, its bits from the lowest on.  The code is one of 8 for a Gaussian, by the fraction of log2 of its
 * width, which the mean of log2 |x| of 1,024 words gives: E log2 |N(0, 1)| = -.9163. */
#pragma once

#include <stdbool.h>

#include "ptq/base/context.h"

/* The most bytes that n words of 2 or 4 bytes take: those of the words, header and end. */
size_t calm_exponent_code_most(size_t n, size_t word_bytes);

/* out [calm_exponent_code_most] = words [n] of bfloat16 (word_bytes 2) or float32 (4), any bits, coded where that is
 * shorter, or as they are (`plain`: always); the bytes that were written. */
size_t calm_exponent_encode(const void *words, size_t n, size_t word_bytes, bool plain, void *out);

/* words [n] = those of `bytes`, of which there are n_bytes or more than the code says.  CALM_EFORMAT: they are no code
 * of n words of this size; `name` stands in the message. */
calm_status calm_exponent_decode(calm_ctx *ctx, const char *name, const void *bytes, size_t n_bytes, size_t n,
                                 size_t word_bytes, void *words);
