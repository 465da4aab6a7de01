/* Three bytes become four characters; the end is padded. */
#include "ptq/base/base64.h"

#include <stdint.h>
#include <string.h>

#define LETTERS_AT_ONCE ((size_t)1024)    /* a multiple of 4 */

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* Encodes one to three bytes. */
static void encode(const uint8_t *bytes, size_t n, char out[4])
{
    const uint32_t word = (uint32_t)bytes[0] << 16 | (n > 1 ? (uint32_t)bytes[1] << 8 : 0) | (n > 2 ? bytes[2] : 0u);
    for (size_t i = 0; i < 4; i++)
        out[i] = i <= n ? letters[word >> (18 - 6 * i) & 63] : '=';
}

void calm_base64_append(calm_text *out, const void *bytes, size_t n_bytes)
{
    const uint8_t *from = bytes;
    char room[LETTERS_AT_ONCE];
    size_t filled = 0;
    for (size_t at = 0; at < n_bytes; at += 3) {
        encode(from + at, n_bytes - at < 3 ? n_bytes - at : 3, room + filled);
        filled += 4;
        if (filled == LETTERS_AT_ONCE || at + 3 >= n_bytes) {
            calm_text_append(out, room, filled);
            filled = 0;
        }
    }
}

static int digit_of(char letter)
{
    const char *at = letter ? strchr(letters, letter) : NULL;
    return at ? (int)(at - letters) : -1;
}

bool calm_base64_decode(const char *in, size_t n, unsigned char *out, size_t *n_out)
{
    const size_t padding = n >= 4 && n % 4 == 0 ? (in[n - 1] == '=') + (in[n - 1] == '=' && in[n - 2] == '=') : 0;
    uint32_t bits = 0;
    *n_out = 0;
    if (n % 4)
        return false;
    for (size_t i = 0; i < n; i++) {
        const int digit = i < n - padding ? digit_of(in[i]) : 0;
        if (digit < 0)
            return false;
        bits = bits << 6 | (uint32_t)digit;
        if (i % 4 == 3) {
            out[(*n_out)++] = (unsigned char)(bits >> 16);
            out[(*n_out)++] = (unsigned char)(bits >> 8);
            out[(*n_out)++] = (unsigned char)bits;
        }
    }
    *n_out -= padding;
    return true;
}
