/* Packing: codes of 2 to 8 bits as a dense bit stream in 32-bit words.
 *
 *   element i of a row has bits [i*b, i*b + b) of a little-endian stream; padding bits are zero
 *
 *     b = 4:  word 0  [ u7 | u6 | u5 | u4 | u3 | u2 | u1 | u0 ]      bit 31 ... bit 0
 *     b = 3:  word 0  [ ..u10 | u9 | ... | u1 | u0 ], u10 continues in word 1
 *
 * compressed-tensors, GPTQ and MLX use the same stream (docs/formats.md section 1).  Words in memory have the
 * little-endian bytes of the files. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Returns the words for n codes: ceil(n * bits / 32). */
size_t calm_pack_words(size_t n, int bits);

/* Unpacks codes [n] from words. */
void calm_unpack_row(const uint32_t *words, size_t n, int bits, uint8_t *codes);

/* Pack and unpack each row of codes [rows, cols], below 2^bits, in words [rows, calm_pack_words(cols)]:
 * compressed-tensors `weight_packed`, MLX `weight`. */
void calm_pack_rows(const uint8_t *codes, size_t rows, size_t cols, int bits, uint32_t *words);
void calm_unpack_rows(const uint32_t *words, size_t rows, size_t cols, int bits, uint8_t *codes);

/* Pack and unpack each column of codes [rows, cols] in words [calm_pack_words(rows), cols]: compressed-tensors
 * `weight_zero_point` (codes = zeros [out, G]), and GPTQ `qweight` from transposed codes. */
void calm_pack_columns(const uint8_t *codes, size_t rows, size_t cols, int bits, uint32_t *words);
void calm_unpack_columns(const uint32_t *words, size_t rows, size_t cols, int bits, uint8_t *codes);

/* Pack and unpack 4-bit codes in AWQ's order: words [n] of codes [8 n], nibble i of word k = codes[8k + order[i]]
 * with order 0 2 4 6 1 3 5 7, low bits first. */
void calm_pack_awq(const uint8_t *codes, size_t n, uint32_t *words);
void calm_unpack_awq(const uint32_t *words, size_t n, uint8_t *codes);
