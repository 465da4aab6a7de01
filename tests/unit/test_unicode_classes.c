/* Classes of characters over all of Unicode: digests of the answers of tokenizers 0.23.3 for single characters
 * (BertNormalizer, StripAccents, Punctuation and Digits). */
#include "ptq/text/unicode_classes.h"

#include "ptq/base/sha256.h"
#include "ptq/text/unicode.h"
#include "tests/support/harness.h"

/* Returns the SHA-256 of one byte, 0 or 1, for every character but surrogates. */
static const char *digest_of(bool (*is_in)(uint32_t))
{
    static uint8_t answers[0x110000];
    static char digest[CALM_SHA256_HEX];
    size_t n = 0;
    for (uint32_t c = 0; c < 0x110000; c++)
        if (c < 0xD800 || c >= 0xE000)
            answers[n++] = is_in(c);
    ck_ok(calm_sha256_bytes(ctx, answers, n, digest));
    return digest;
}

TEST(classes_are_those_of_the_library)
{
    ck_assert_str_eq(digest_of(calm_unicode_is_punctuation),
                     "061cc268c0216dd84626b9a14b191f192ede4cc373be0e3e40dfe66e9d4c48fc");
    ck_assert_str_eq(digest_of(calm_unicode_is_other),
                     "98b695c1edb5c244dad564b863359b90eec0ea624e319001ccb7f8cf3084469f");
    ck_assert_str_eq(digest_of(calm_unicode_is_nonspacing),
                     "da3bc9803f4e5c5888a2d8b1efc57989eb841a22f1466709729a0620586c52f8");
    ck_assert_str_eq(digest_of(calm_unicode_is_mark),
                     "ea7344219781c7326a1c7cb1fe4bf858213a9acded7d273d872aefd3eb3c9714");
    ck_assert_str_eq(digest_of(calm_unicode_is_ideograph),
                     "14218462ccb8b98652a5941466cdba03f628639881078f83b9dd534f56bbad0c");
    ck_assert_str_eq(digest_of(calm_unicode_is_number),
                     "336a0ae224b67082d33bc34e645322fb6b6c0c5520e15b276d2973f17036a5f4");
    ck_assert_str_eq(digest_of(calm_unicode_is_word),
                     "15de5202f9f8a2e7ce44ea5cb0d173cd837bddbd6d4fb9bc84f2c7970a07d633");
}
END_OF_TEST

TEST(letters_become_small)
{
    static const uint32_t pairs[][2] = {{'A', 'a'}, {'z', 'z'}, {0xC9, 0xE9}, {0x1E9E, 0xDF}, {0x1C89, 0x1C8A},
                                        {0x10D65, 0x10D85}, {0xA7DC, 0x19B}, {0x4E00, 0x4E00}};
    uint32_t out[2];
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        ck_assert_uint_eq(calm_unicode_lower(pairs[i][0], out), 1);
        ck_assert_uint_eq(out[0], pairs[i][1]);
    }
    ck_assert_uint_eq(calm_unicode_lower(0x130, out), 2);
    ck_assert_uint_eq(out[0], 'i');
    ck_assert_uint_eq(out[1], 0x307);
}
END_OF_TEST

TEST(grapheme_clusters)
{
    ck_assert_uint_eq(calm_unicode_grapheme("ab", 2), 1);
    ck_assert_uint_eq(calm_unicode_grapheme("e\xCC\x81x", 4), 3);
    ck_assert_uint_eq(calm_unicode_grapheme("\r\n", 2), 2);
    ck_assert_uint_eq(calm_unicode_grapheme("\xF0\x9F\x87\xA9\xF0\x9F\x87\xAA", 8), 8);    /* a flag */
}
END_OF_TEST

/* A decomposition newer than the library's is not made, and a newer mark is not sorted. */
TEST(forms_are_as_old_as_the_library)
{
    static const struct {
        calm_unicode_form form;
        const char *in, *out;
    } cases[] = {
        {CALM_NFD, "\xC3\xA9", "e\xCC\x81"},
        {CALM_NFKC, "\xEF\xAC\x81\xC2\xBD", "fi1\xE2\x81\x84" "2"},
        {CALM_NFKD, "\xE2\x84\xAB\xEF\xBC\xA1", "A\xCC\x8A" "A"},
        {CALM_NFKC, "\xE3\x8B\xBF", "\xE3\x8B\xBF"},                            /* U+32FF of 2019 */
        {CALM_NFD, "a\xDF\xBD\xCC\xB4", "a\xDF\xBD\xCC\xB4"},                   /* U+07FD of 2018, then an overlay */
        {CALM_NFD, "a\xCC\x81\xCC\xB4", "a\xCC\xB4\xCC\x81"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *out;
        size_t n;
        ck_ok(calm_unicode_normalize(ctx, cases[i].form, cases[i].in, strlen(cases[i].in), &out, &n));
        ck_assert_uint_eq(n, strlen(cases[i].out));
        ck_assert_mem_eq(out, cases[i].out, n);
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("unicode_classes", (const TTest *[]){classes_are_those_of_the_library, letters_become_small,
                                                          grapheme_clusters, forms_are_as_old_as_the_library, NULL});
}
