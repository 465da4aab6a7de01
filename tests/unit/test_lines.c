/* Lines of a text: blank ones are counted and skipped, and only 0x0A ends one. */
#include "ptq/text/lines.h"

#include "tests/support/harness.h"

TEST(lines_are_handed_out_with_their_numbers)
{
    static const char text[] = "one\n\n \t\r\ntwo\xE2\x80\xA8still two\r\n\nthree";
    calm_lines lines = {.text = text, .n = sizeof text - 1};
    static const struct {
        size_t number;
        const char *text;
    } expected[] = {{1, "one"}, {4, "two\xE2\x80\xA8still two\r"}, {6, "three"}};
    const char *line;
    size_t n;
    for (size_t i = 0; i < 3; i++) {
        ck_assert(calm_lines_next(&lines, &line, &n));
        ck_assert_uint_eq(lines.number, expected[i].number);
        ck_assert_uint_eq(n, strlen(expected[i].text));
        ck_assert(memcmp(line, expected[i].text, n) == 0);
    }
    ck_assert(!calm_lines_next(&lines, &line, &n));
    ck_assert(!calm_lines_next(&lines, &line, &n));
    ck_assert(calm_lines_blank("", 0));
    ck_assert(calm_lines_blank(" \r\n\t", 4));
    ck_assert(!calm_lines_blank(" \0", 2));
}
END_OF_TEST

int main(void)
{
    return run_tests("lines", (const TTest *[]){lines_are_handed_out_with_their_numbers, NULL});
}
