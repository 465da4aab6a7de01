/* The byte-level alphabet of GPT-2. */
#include "ptq/tokenizer/bytelevel.h"

#include <string.h>

#include "ptq/text/unicode.h"

/* Bytes 00-20, 7F-A0 and AD have no printable character: they are mapped from U+0100 on. */
#define FIRST_STAND_IN 0x100
#define N_LOW 0x21
#define N_MIDDLE (0xA1 - 0x7F)

/* Returns the character of a byte. */
static uint32_t character_of(uint8_t byte)
{
    if (byte < N_LOW)
        return FIRST_STAND_IN + byte;
    if (byte >= 0x7F && byte <= 0xA0)
        return FIRST_STAND_IN + N_LOW + (byte - 0x7Fu);
    if (byte == 0xAD)
        return FIRST_STAND_IN + N_LOW + N_MIDDLE;
    return byte;
}

/* Returns the byte of a character, or -1. */
static int byte_of(uint32_t character)
{
    if (character >= CALM_BYTELEVEL_END)
        return -1;
    if (character == FIRST_STAND_IN + N_LOW + N_MIDDLE)
        return 0xAD;
    if (character >= FIRST_STAND_IN + N_LOW)
        return (int)(character - FIRST_STAND_IN - N_LOW + 0x7F);
    if (character >= FIRST_STAND_IN)
        return (int)(character - FIRST_STAND_IN);
    return character_of((uint8_t)character) == character ? (int)character : -1;
}

size_t calm_bytelevel_spell(const char *in, size_t n, char *out)
{
    size_t written = 0;
    for (size_t i = 0; i < n; i++)
        written += calm_utf8_encode(character_of((uint8_t)in[i]), out + written);
    return written;
}

size_t calm_bytelevel_read(const char *in, size_t n, char *out)
{
    size_t written = 0;
    uint32_t character;
    for (size_t at = 0; at < n;) {
        at += calm_utf8_decode(in + at, &character);
        int byte = byte_of(character);
        if (byte < 0) {
            memcpy(out, in, n);
            return n;
        }
        out[written++] = (char)byte;
    }
    return written;
}
