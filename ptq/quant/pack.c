/* Bit streams, eight codes at a time: eight codes of b bits are b bytes of the stream for any b, so the eight bytes
 * of a 64-bit word are folded in three steps (pairs, fours, eight) and b bytes are stored. */
#include "ptq/quant/pack.h"

#include <assert.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "word streams are copied as the files hold them");

#define EACH_16 0x0001000100010001u
#define EACH_32 0x0000000100000001u

size_t calm_pack_words(size_t n, int bits)
{
    return n / 32 * (size_t)bits + (n % 32 * (size_t)bits + 31) / 32;
}

/* Folds eight bytes, each below 2^b, to 8b adjacent bits. */
static uint64_t fold(uint64_t x, int b)
{
    uint64_t one = (1u << b) - 1, two = (1u << 2 * b) - 1, four = b == 8 ? UINT32_MAX : (1u << 4 * b) - 1;
    x = (x & one * EACH_16) | ((x >> (8 - b)) & (one << b) * EACH_16);
    x = (x & two * EACH_32) | ((x >> (16 - 2 * b)) & (two << 2 * b) * EACH_32);
    return (x & four) | ((x >> (32 - 4 * b)) & four << 4 * b);
}

/* Reverses fold(). */
static uint64_t unfold(uint64_t x, int b)
{
    uint64_t one = (1u << b) - 1, two = (1u << 2 * b) - 1, four = b == 8 ? UINT32_MAX : (1u << 4 * b) - 1;
    x = (x & four) | ((x & four << 4 * b) << (32 - 4 * b));
    x = (x & two * EACH_32) | ((x & (two << 2 * b) * EACH_32) << (16 - 2 * b));
    return (x & one * EACH_16) | ((x & (one << b) * EACH_16) << (8 - b));
}

/* Packs codes of four bits, for all whole bytes of the row, in a loop that vectorizes. */
static void pack_fours(const uint8_t *codes, size_t n, uint8_t *stream)
{
    for (size_t i = 0; i < n / 2; i++)
        stream[i] = (uint8_t)((codes[2 * i] & 15) | codes[2 * i + 1] << 4);
}

static void unpack_fours(const uint8_t *stream, size_t n, uint8_t *codes)
{
    for (size_t i = 0; i < n / 2; i++) {
        codes[2 * i] = stream[i] & 15;
        codes[2 * i + 1] = stream[i] >> 4;
    }
}

static void pack_row(const uint8_t *codes, size_t n, int bits, uint32_t *words)
{
    assert(bits >= 2 && bits <= 8);
    if (bits == 4 && n % 8 == 0) {
        pack_fours(codes, n, (uint8_t *)words);
        return;
    }
    uint8_t *stream = (uint8_t *)words;
    size_t bytes = calm_pack_words(n, bits) * 4, at = 0, i = 0;
    for (; i + 8 <= n; i += 8, at += (size_t)bits) {
        uint64_t eight;
        memcpy(&eight, codes + i, 8);
        eight = fold(eight, bits);
        memcpy(stream + at, &eight, (size_t)bits);
    }
    uint64_t rest = 0;
    memcpy(&rest, codes + i, n - i);
    rest = fold(rest, bits);
    size_t tail = ((n - i) * (size_t)bits + 7) / 8;
    memcpy(stream + at, &rest, tail);
    memset(stream + at + tail, 0, bytes - at - tail);
}

void calm_unpack_row(const uint32_t *words, size_t n, int bits, uint8_t *codes)
{
    assert(bits >= 2 && bits <= 8);
    const uint8_t *stream = (const uint8_t *)words;
    size_t at = 0, i = 0;
    if (bits == 4 && n % 8 == 0) {
        unpack_fours(stream, n, codes);
        return;
    }
    for (; i + 8 <= n; i += 8, at += (size_t)bits) {
        uint64_t eight = 0;
        memcpy(&eight, stream + at, (size_t)bits);
        eight = unfold(eight, bits);
        memcpy(codes + i, &eight, 8);
    }
    uint64_t rest = 0;
    memcpy(&rest, stream + at, ((n - i) * (size_t)bits + 7) / 8);
    rest = unfold(rest, bits);
    memcpy(codes + i, &rest, n - i);
}

void calm_pack_rows(const uint8_t *codes, size_t rows, size_t cols, int bits, uint32_t *words)
{
    for (size_t r = 0; r < rows; r++)
        pack_row(codes + r * cols, cols, bits, words + r * calm_pack_words(cols, bits));
}

void calm_unpack_rows(const uint32_t *words, size_t rows, size_t cols, int bits, uint8_t *codes)
{
    for (size_t r = 0; r < rows; r++)
        calm_unpack_row(words + r * calm_pack_words(cols, bits), cols, bits, codes + r * cols);
}

void calm_pack_columns(const uint8_t *codes, size_t rows, size_t cols, int bits, uint32_t *words)
{
    memset(words, 0, calm_pack_words(rows, bits) * cols * sizeof *words);
    for (size_t r = 0; r < rows; r++) {
        size_t word = r * (size_t)bits / 32, shift = r * (size_t)bits % 32;
        for (size_t c = 0; c < cols; c++)
            words[word * cols + c] |= (uint32_t)codes[r * cols + c] << shift;
        if (shift + (size_t)bits > 32)
            for (size_t c = 0; c < cols; c++)
                words[(word + 1) * cols + c] |= (uint32_t)codes[r * cols + c] >> (32 - shift);
    }
}

void calm_unpack_columns(const uint32_t *words, size_t rows, size_t cols, int bits, uint8_t *codes)
{
    uint32_t mask = (1u << bits) - 1;
    for (size_t r = 0; r < rows; r++) {
        size_t word = r * (size_t)bits / 32, shift = r * (size_t)bits % 32;
        for (size_t c = 0; c < cols; c++)
            codes[r * cols + c] = (uint8_t)(words[word * cols + c] >> shift & mask);
        if (shift + (size_t)bits > 32)
            for (size_t c = 0; c < cols; c++)
                codes[r * cols + c] |= (uint8_t)(words[(word + 1) * cols + c] << (32 - shift) & mask);
    }
}

static const uint8_t awq_order[8] = {0, 2, 4, 6, 1, 3, 5, 7};

void calm_pack_awq(const uint8_t *codes, size_t n, uint32_t *words)
{
    for (size_t k = 0; k < n; k++) {
        uint32_t word = 0;
        for (size_t i = 0; i < 8; i++)
            word |= (uint32_t)codes[8 * k + awq_order[i]] << (4 * i);
        words[k] = word;
    }
}

void calm_unpack_awq(const uint32_t *words, size_t n, uint8_t *codes)
{
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < 8; i++)
            codes[8 * k + awq_order[i]] = (uint8_t)(words[k] >> (4 * i) & 15);
}
