/* Repairing the bytes of texts before they are read: every three-byte surrogate and every escape, against their
 * definition. */
#include "ptq/data/raw_text.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/harness.h"

/* Returns `text` repaired, as a string. */
static const char *repaired(bool json, const char *text)
{
    calm_text copy;
    const char *out = text;
    size_t n = strlen(text);
    calm_text_init(&copy);
    ck_ok(calm_raw_text_repair(ctx, json, &copy, &out, &n));
    out = test_format("%.*s", (int)n, out);
    calm_text_clear(&copy);
    return out;
}

TEST(every_code_unit)
{
    char text[16];
    for (unsigned unit = 0x800; unit < 0x10000; unit++) {
        const bool surrogate = unit >= 0xD800 && unit <= 0xDFFF;
        snprintf(text, sizeof text, "a%c%c%cz", 0xE0 | unit >> 12, 0x80 | (unit >> 6 & 63), 0x80 | (unit & 63));
        ck_assert_str_eq(repaired(false, text), surrogate ? "a\xEF\xBF\xBDz" : text);
        snprintf(text, sizeof text, unit & 1 ? "a\\u%04xz" : "a\\u%04Xz", unit);
        ck_assert_str_eq(repaired(true, text), surrogate ? "a\\ufffdz" : text);
        ck_assert_str_eq(repaired(false, text), text);
    }
}
END_OF_TEST

TEST(broken_off)
{
    static const char *const kept[] = {"", "\\", "\\u", "\\ud8", "\\ud80", "\\ud80g", "\\\\ud800", "\xED", "\xED\xA0",
                                       "\xED\xA0x", "\\ud83d\\ude00"};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        ck_assert_str_eq(repaired(true, kept[i]), kept[i]);
    ck_assert_str_eq(repaired(true, "\\ud83d\\ude0"), "\\ufffd\\ude0");
    ck_assert_str_eq(repaired(true, "\\ude00\\ud83d\\ude00\\\\\\ud83d"), "\\ufffd\\ud83d\\ude00\\\\\\ufffd");
}
END_OF_TEST

TEST(ends_of_lines)
{
    ck_assert_str_eq(repaired(false, "\r\na\r\r\nb\rc\r\n\r\n\r"), "\na\r\nb\rc\n\n\r");
    ck_assert_str_eq(repaired(true, "1\r\n"), "1\r\n");
}
END_OF_TEST

TEST(begins_like_json)
{
    static const char *const yes[] = {"[{", " [ \n\"", "{\"", "{ }", "\n[\n]\n"};
    static const char *const no[] = {"", " ", "[", "{", "[1]", "[[", "[] x", "{x", "\"a\"", "a[{", "{{"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        ck_assert_msg(calm_raw_text_begins_json(yes[i], strlen(yes[i])), "%s", yes[i]);
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        ck_assert_msg(!calm_raw_text_begins_json(no[i], strlen(no[i])), "%s", no[i]);
}
END_OF_TEST

TEST(marks)
{
    ck_assert_uint_eq(calm_raw_text_mark("\xEF\xBB\xBF", 3), 3);
    ck_assert_uint_eq(calm_raw_text_mark("\xEF\xBB\xBF", 2), 0);
    ck_assert_uint_eq(calm_raw_text_mark("abc", 3), 0);
    ck_fails(calm_raw_text_check(ctx, "x", "\xFF\xFE" "a", 3), CALM_EARG,
             "x: expected UTF-8 text or JSON, found UTF-16");
    ck_ok(calm_raw_text_check(ctx, "x", "PAR", 3));
}
END_OF_TEST

int main(void)
{
    return run_tests("raw_text", (const TTest *[]){every_code_unit, broken_off, ends_of_lines, begins_like_json, marks,
                                                   NULL});
}
