/* Growing strings and the nearest word. */
#include "ptq/base/text.h"

#include "tests/support/harness.h"

TEST(text_grows_and_stays_terminated)
{
    calm_text text;
    calm_text_init(&text);
    ck_assert_ptr_null(text.data);
    for (int i = 0; i < 5000; i++) {
        calm_text_printf(&text, "%d,", i);
        ck_assert_uint_eq(strlen(text.data), text.length);
    }
    ck_ok(calm_text_check(ctx, &text));
    ck_assert_int_eq(strncmp(text.data, "0,1,2,3,", 8), 0);
    ck_assert_str_eq(text.data + text.length - 10, "4998,4999,");
    calm_text_clear(&text);
    ck_assert_ptr_null(text.data);
}
END_OF_TEST

TEST(bytes_may_hold_zeros_and_be_none)
{
    calm_text text;
    calm_text_init(&text);
    calm_text_append(&text, NULL, 0);
    ck_assert_str_eq(text.data, "");
    calm_text_append(&text, "a\0b", 3);
    ck_assert_uint_eq(text.length, 3);
    ck_assert_int_eq(memcmp(text.data, "a\0b", 4), 0);
    calm_text_clear(&text);
}
END_OF_TEST

TEST(a_failed_append_is_remembered)
{
    calm_text text;
    calm_text_init(&text);
    calm_text_append(&text, "kept", 4);
    calm_text_append(&text, "x", SIZE_MAX - 2);    /* cannot be: the length overflows */
    calm_text_append(&text, "later", 5);
    ck_assert(text.failed);
    ck_assert_str_eq(text.data, "kept");
    ck_fails(calm_text_check(ctx, &text), CALM_ENOMEM, "out of memory");
    calm_text_clear(&text);
}
END_OF_TEST

TEST(edit_distance_is_levenshteins)
{
    static const struct {
        const char *a, *b;
        size_t distance;
    } rows[] = {{"", "", 0},           {"", "abc", 3},         {"kitten", "sitting", 3}, {"flaw", "lawn", 2},
                {"gptq", "gptq", 0},   {"gtpq", "gptq", 2},    {"rtn", "mkq", 3}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ck_assert_uint_eq(calm_edit_distance(rows[i].a, rows[i].b), rows[i].distance);
        ck_assert_uint_eq(calm_edit_distance(rows[i].b, rows[i].a), rows[i].distance);
    }
    char long_word[1000];
    memset(long_word, 'a', sizeof long_word - 1);
    long_word[sizeof long_word - 1] = '\0';
    ck_assert_uint_eq(calm_edit_distance(long_word, long_word), 0);
    ck_assert_uint_eq(calm_edit_distance(long_word, ""), 63);
}
END_OF_TEST

TEST(nearest_finds_a_slip_and_nothing_far)
{
    static const char *const names[] = {"rtn", "gptq", "smoothquant", "mkq", "gptq-hls"};
    ck_assert_str_eq(calm_nearest("gptk", names, 5), "gptq");
    ck_assert_str_eq(calm_nearest("smothquant", names, 5), "smoothquant");
    ck_assert_str_eq(calm_nearest("gptqhls", names, 5), "gptq-hls");
    ck_assert_ptr_null(calm_nearest("unrelated", names, 5));
    ck_assert_ptr_null(calm_nearest("gptq", names, 0));
}
END_OF_TEST

int main(void)
{
    return run_tests("text",
                     (const TTest *[]){text_grows_and_stays_terminated, bytes_may_hold_zeros_and_be_none,
                                       a_failed_append_is_remembered, edit_distance_is_levenshteins,
                                       nearest_finds_a_slip_and_nothing_far, NULL});
}
