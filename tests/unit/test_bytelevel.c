/* The byte-level alphabet, against the procedure of the GPT-2 release step by step. */
#include "ptq/tokenizer/bytelevel.h"

#include "ptq/text/unicode.h"
#include "tests/support/harness.h"

/* Returns the byte of a character, or -1.  A text with a character outside of the alphabet is copied, so that U+0120
 * after that stays two bytes and does not become a space. */
static int byte_of(uint32_t character)
{
    char text[CALM_UTF8_MAX + 2], out[CALM_UTF8_MAX + 2];
    const size_t n = calm_utf8_encode(character, text);
    memcpy(text + n, "\xC4\xA0", 2);
    const size_t n_out = calm_bytelevel_read(text, n + 2, out);
    if (n_out == n + 2) {
        ck_assert_mem_eq(out, text, n_out);
        return -1;
    }
    ck_assert_uint_eq(n_out, 2);
    ck_assert_int_eq(out[1], ' ');
    return (unsigned char)out[0];
}

TEST(the_alphabet_is_that_of_gpt2)
{
    uint32_t next = 256;
    bool taken[CALM_BYTELEVEL_END] = {false};
    for (int byte = 0; byte < 256; byte++) {
        bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
        uint32_t expected = printable ? (uint32_t)byte : next++, found;
        char spelled[CALM_UTF8_MAX];
        ck_assert_uint_eq(calm_bytelevel_spell(&(const char){(char)byte}, 1, spelled), expected < 0x80 ? 1 : 2);
        calm_utf8_decode(spelled, &found);
        ck_assert_uint_eq(found, expected);
        ck_assert_int_eq(byte_of(expected), byte);
        taken[expected] = true;
    }
    ck_assert_uint_eq(next, CALM_BYTELEVEL_END);
    for (uint32_t c = 0; c < CALM_BYTELEVEL_END; c++)
        ck_assert_int_eq(byte_of(c) >= 0, taken[c]);
    ck_assert_int_eq(byte_of(CALM_BYTELEVEL_END), -1);
    ck_assert_int_eq(byte_of(0x4E2D), -1);
}
END_OF_TEST

TEST(every_byte_is_spelled_and_read)
{
    char bytes[256], spelled[512], back[512];
    for (int i = 0; i < 256; i++)
        bytes[i] = (char)i;
    size_t n = calm_bytelevel_spell(bytes, 256, spelled);
    ck_assert_uint_eq(calm_utf8_invalid_at(spelled, n), n);
    ck_assert_uint_eq(calm_bytelevel_read(spelled, n, back), 256);
    ck_assert_mem_eq(back, bytes, 256);
}
END_OF_TEST

TEST(other_texts_are_copied)
{
    char back[16];
    ck_assert_uint_eq(calm_bytelevel_read("\xC4\xA0" "a\xE4\xB8\xAD", 6, back), 6);
    ck_assert_mem_eq(back, "\xC4\xA0" "a\xE4\xB8\xAD", 6);
    ck_assert_uint_eq(calm_bytelevel_read("a b", 3, back), 3);
    ck_assert_mem_eq(back, "a b", 3);
}
END_OF_TEST

int main(void)
{
    return run_tests("bytelevel", (const TTest *[]){the_alphabet_is_that_of_gpt2, every_byte_is_spelled_and_read,
                                                    other_texts_are_copied, NULL});
}
