/* UTF-8 at its limits, NFC against published vectors, classes of characters. */
#include "ptq/text/unicode.h"

#include "ptq/base/rng_impl.h"
#include "tests/support/harness.h"

TEST(ill_formed_text_is_found_at_its_first_byte)
{
    static const struct {
        const char *text;
        size_t at;
    } cases[] = {
        {"", 0},
        {"plain", 5},
        {"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", 9},
        {"abcdefgh\xFFij", 8},
        {"a\x80", 1},
        {"\xC0\xAF", 0},                /* overlong */
        {"\xE0\x9F\xBF", 0},
        {"\xF0\x8F\xBF\xBF", 0},
        {"x\xED\xA0\x80", 1},           /* a surrogate */
        {"\xED\x9F\xBF\xEE\x80\x80", 6},
        {"\xF4\x8F\xBF\xBF", 4},
        {"\xF4\x90\x80\x80", 0},        /* U+110000 */
        {"\xF5\x80\x80\x80", 0},
        {"abc\xE2\x82", 3},             /* cut off */
        {"abc\xC3", 3},
        {"\xE2\x28\xA1", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = strlen(cases[i].text);
        ck_assert_uint_eq(calm_utf8_invalid_at(cases[i].text, n), cases[i].at);
    }
    ck_assert_uint_eq(calm_utf8_invalid_at("a\0b", 3), 3);
}
END_OF_TEST

TEST(every_character_is_encoded_and_decoded)
{
    size_t n_wrong = 0;    /* counted, because a million checks take seconds */
    for (uint32_t c = 0; c < 0x110000; c++) {
        char text[CALM_UTF8_MAX];
        uint32_t back;
        size_t n = calm_utf8_encode(c, text);
        bool surrogate = c >= 0xD800 && c < 0xE000;
        n_wrong += n != (c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4);
        n_wrong += calm_utf8_decode(text, &back) != n || back != c;
        n_wrong += calm_utf8_invalid_at(text, n) != (surrogate ? 0 : n);
        char behind[2 + CALM_UTF8_MAX] = "\xC3\xA9";    /* the character after another one, and that one */
        memcpy(behind + 2, text, n);
        n_wrong += calm_utf8_step_back(behind, 2 + n) != 2 || calm_utf8_step_back(behind, 2) != 0;
    }
    ck_assert_uint_eq(n_wrong, 0);
}
END_OF_TEST

/* The examples of the Unicode Standard, tables 3-8 to 3-11, and the ends of a text. */
TEST(ill_formed_sequences_are_replaced)
{
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"abc", "abc"},
        {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", "????????A"},
        {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", "????????A"},
        {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", "?????A??B"},
        {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", "????A"},
        {"a\xF0\x9F\x98", "a?"},
        {"\xC3", "?"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        calm_text out, expected;
        calm_text_init(&out);
        calm_text_init(&expected);
        for (const char *c = cases[i].expected; *c; c++)
            calm_text_append(&expected, *c == '?' ? "\xEF\xBF\xBD" : c, *c == '?' ? 3 : 1);
        calm_utf8_repair(cases[i].text, strlen(cases[i].text), &out);
        ck_assert_str_eq(out.data, expected.data);
        calm_text_clear(&out);
        calm_text_clear(&expected);
    }
}
END_OF_TEST

static const char *nfc(const char *text)
{
    const char *out;
    size_t n;
    ck_ok(calm_unicode_normalize(ctx, CALM_NFC, text, strlen(text), &out, &n));
    return test_format("%.*s", (int)n, out);
}

/* From NormalizationTest.txt and UAX #15. */
TEST(composed_forms)
{
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"", ""},
        {"plain text", "plain text"},
        {"\xC3\xA9t\xC3\xA9", "\xC3\xA9t\xC3\xA9"},
        {"e\xCC\x81t", "\xC3\xA9t"},
        {"xe\xCC\x81", "x\xC3\xA9"},
        {"\xCC\x81" "e", "\xCC\x81" "e"},                                      /* a mark with nothing before */
        {"\xE2\x84\xAB", "\xC3\x85"},                                          /* U+212B, Angstrom to A with ring */
        {"\xE2\x84\xA6", "\xCE\xA9"},                                          /* U+2126, Ohm to Omega */
        {"\xE0\xA5\x98", "\xE0\xA4\x95\xE0\xA4\xBC"},                          /* U+0958, excluded from composition */
        {"\xEF\xAC\x81", "\xEF\xAC\x81"},                                      /* U+FB01, compatibility only */
        {"\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB", "\xED\x95\x9C"},              /* Hangul */
        {"\xED\x95\x98\xE1\x86\xAB", "\xED\x95\x9C"},
        {"\xCE\xB1\xCC\x93\xCC\x80\xCD\x85", "\xE1\xBE\x82"},                  /* U+1F82 of four */
        {"q\xCC\x87\xCC\xA3", "q\xCC\xA3\xCC\x87"},                            /* order by class */
        {"\xE1\xB8\x8B\xCC\xA3", "\xE1\xB8\x8D\xCC\x87"},                      /* U+1E0B U+0323 */
        {"a\xCC\x95\xCC\x80\xD6\xAE" "b", "\xC3\xA0\xD6\xAE\xCC\x95" "b"},
        {"\xF0\x9D\x85\xA0", "\xF0\x9D\x85\x98\xF0\x9D\x85\xA5\xF0\x9D\x85\xAE"},    /* three times as long */
        {"\xE4\xB8\xAD e\xCC\x81 \xE4\xB8\xAD", "\xE4\xB8\xAD \xC3\xA9 \xE4\xB8\xAD"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_msg(strcmp(nfc(cases[i].text), cases[i].expected) == 0, "case %zu: \"%s\", expected \"%s\"", i,
                      nfc(cases[i].text), cases[i].expected);
}
END_OF_TEST

TEST(ascii_is_not_copied)
{
    const char *text = "nothing to do, \xC3\xA9 neither", *out;
    size_t n;
    ck_ok(calm_unicode_normalize(ctx, CALM_NFC, text, strlen(text), &out, &n));
    ck_assert_ptr_eq(out, text);
    ck_assert_uint_eq(n, strlen(text));
    ck_assert_uint_eq(ctx->scratch->used_bytes, 0);
}
END_OF_TEST

/* 200,000 marks of two alternating classes: exchanging neighbours would take minutes. */
TEST(many_marks_are_sorted_in_time)
{
    enum { N = 100000 };
    char *text = malloc(4 * N + 1);
    const char *out;
    size_t n;
    text[0] = 'q';
    for (size_t i = 0; i < N; i++)
        memcpy(text + 1 + 4 * i, "\xCC\x81\xCC\x96", 4);    /* U+0301 above, U+0316 below */
    ck_ok(calm_unicode_normalize(ctx, CALM_NFC, text, 4 * N + 1, &out, &n));
    ck_assert_uint_eq(n, 4 * N + 1);
    for (size_t i = 0; i < N; i++) {
        ck_assert_mem_eq(out + 1 + 2 * i, "\xCC\x96", 2);
        ck_assert_mem_eq(out + 1 + 2 * (N + i), "\xCC\x81", 2);
    }
    free(text);
}
END_OF_TEST

/* For every text the result is well-formed, at most 3 times as long, and normalizes to itself. */
TEST(normalizing_twice_changes_nothing)
{
    static const uint32_t ranges[][2] = {{0x20, 0x7F}, {0xC0, 0x250}, {0x300, 0x370}, {0x900, 0x980},
                                         {0x1100, 0x1200}, {0x1D158, 0x1D170}, {0x1F00, 0x2000}, {0xAC00, 0xD7A4}};
    char text[400];
    for (uint64_t round = 0; round < 500; round++) {
        size_t n = 0, n_once, n_twice;
        const char *once, *twice;
        for (uint64_t i = 0; i < 100; i++) {
            const uint32_t *range = ranges[calm_rng_u64(7, round, 2 * i) % 8];
            n += calm_utf8_encode(range[0] + (uint32_t)(calm_rng_u64(7, round, 2 * i + 1) % (range[1] - range[0])),
                                  text + n);
        }
        ck_ok(calm_unicode_normalize(ctx, CALM_NFC, text, n, &once, &n_once));
        ck_assert_uint_le(n_once, 3 * n);
        ck_assert_uint_eq(calm_utf8_invalid_at(once, n_once), n_once);
        ck_ok(calm_unicode_normalize(ctx, CALM_NFC, once, n_once, &twice, &n_twice));
        ck_assert_uint_eq(n_twice, n_once);
        ck_assert_mem_eq(twice, once, n_once);
    }
}
END_OF_TEST

TEST(classes)
{
    static const uint32_t spaces[] = {' ', '\t', '\r', 0x85, 0xA0, 0x1680, 0x2003, 0x2028, 0x202F, 0x205F, 0x3000};
    static const uint32_t none[] = {'a', 0x1C, 0x180E, 0x200B, 0xFEFF, 0x2060};
    static const uint32_t words[] = {'a', '_', '7', 0xE9, 0x301, 0x4E2D, 0x0669, 0x200D, 0x24B6, 0x203F, 0x2160};
    static const uint32_t others[] = {' ', '-', '$', 0xB2, 0x20AC, 0x2460, 0x1F600};
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
        ck_assert_msg(calm_unicode_is_space(spaces[i]), "U+%04X", spaces[i]);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        ck_assert_msg(!calm_unicode_is_space(none[i]), "U+%04X", none[i]);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        ck_assert_msg(calm_unicode_is_word(words[i]), "U+%04X", words[i]);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        ck_assert_msg(!calm_unicode_is_word(others[i]), "U+%04X", others[i]);
    ck_assert(calm_unicode_is_unprintable(0x200B) && calm_unicode_is_unprintable(0x7F));
    ck_assert(!calm_unicode_is_unprintable(0x4E2D) && !calm_unicode_is_unprintable(' '));
}
END_OF_TEST

TEST(no_memory_is_an_error)
{
    const char *out;
    size_t n;
    for (long k = 1; k <= 2; k++) {
        ctx->scratch->fail_in = k;
        ck_fails(calm_unicode_normalize(ctx, CALM_NFC, "e\xCC\x81", 3, &out, &n), CALM_ENOMEM, "out of memory");
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("unicode",
                     (const TTest *[]){ill_formed_text_is_found_at_its_first_byte,
                                       every_character_is_encoded_and_decoded, ill_formed_sequences_are_replaced,
                                       composed_forms, ascii_is_not_copied, many_marks_are_sorted_in_time,
                                       normalizing_twice_changes_nothing, classes, no_memory_is_an_error, NULL});
}
