/* Base64: the vectors of RFC 4648, and all lengths around the size of the output buffer. */
#include "ptq/base/base64.h"
#include "tests/support/harness.h"

#include <stdlib.h>
#include <string.h>

static const char *encoded(const void *bytes, size_t n)
{
    static calm_text text;
    calm_text_clear(&text);
    calm_base64_append(&text, bytes, n);
    return text.data ? text.data : "";
}

TEST(vectors_of_the_rfc)
{
    static const char *const vectors[][2] = {{"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"},
                                             {"foob", "Zm9vYg=="}, {"fooba", "Zm9vYmE="}, {"foobar", "Zm9vYmFy"}};
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        ck_assert_str_eq(encoded(vectors[i][0], strlen(vectors[i][0])), vectors[i][1]);
    ck_assert_str_eq(encoded("\xfb\xff\xfe", 3), "+//+");
    ck_assert_str_eq(encoded("\0\0\0\0", 4), "AAAAAA==");
}
END_OF_TEST

/* Returns the value of a letter: its place in the alphabet of RFC 4648. */
static int value_of(char letter)
{
    return letter >= 'A' && letter <= 'Z' ? letter - 'A'
           : letter >= 'a' && letter <= 'z' ? letter - 'a' + 26
           : letter >= '0' && letter <= '9' ? letter - '0' + 52
           : letter == '+' ? 62 : letter == '/' ? 63 : 0;
}

TEST(every_length_is_read_back)
{
    static unsigned char bytes[2400];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 167 + i / 251);
    for (size_t n = 0; n < sizeof bytes; n += n < 20 || (n > 750 && n < 790) || n > 2380 ? 1 : 97) {
        const char *text = encoded(bytes, n);
        ck_assert_uint_eq(strlen(text), (n + 2) / 3 * 4);
        static unsigned char back[2403];
        size_t n_back;
        ck_assert(calm_base64_decode(text, strlen(text), back, &n_back));
        ck_assert_uint_eq(n_back, n);
        ck_assert(n == 0 || memcmp(back, bytes, n) == 0);
        for (size_t i = 0; i < n; i++) {
            const char *at = text + i / 3 * 4 + i % 3;
            const int word = value_of(at[0]) << 6 | value_of(at[1]);
            ck_assert_int_eq(word >> (4 - 2 * (int)(i % 3)) & 255, bytes[i]);
        }
    }
}
END_OF_TEST

TEST(not_base64)
{
    static const char *const wrong[] = {"Zg=", "Zg", "Z", "Zg=a", "Z===", "Zm9vYg=!", "Zm 9", "Zm9v\n", "=AAA", "Zm9-"};
    unsigned char out[12];
    size_t n;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        ck_assert_msg(!calm_base64_decode(wrong[i], strlen(wrong[i]), out, &n), "%s", wrong[i]);
}
END_OF_TEST

int main(void)
{
    return run_tests("base64", (const TTest *[]){vectors_of_the_rfc, every_length_is_read_back, not_base64, NULL});
}
