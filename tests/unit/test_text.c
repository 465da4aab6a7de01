/* Growing strings, and the nearest word. */
#include "ptq/base/text.h"

#include <wchar.h>

#include "ptq/base/scope.h"
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

TEST(a_text_moves_to_an_arena)
{
    calm_text text;
    char *out;
    size_t n;
    calm_text_init(&text);
    calm_text_append(&text, "a\0b", 3);
    ck_ok(calm_text_take(ctx, ctx->out, &text, &out, &n));
    ck_assert_mem_eq(out, "a\0b", 4);
    ck_assert_uint_eq(n, 3);
    ck_assert_ptr_null(text.data);
    ck_ok(calm_text_take(ctx, ctx->out, &text, &out, NULL));    /* of nothing: "" */
    ck_assert_str_eq(out, "");
    calm_text_append(&text, "x", SIZE_MAX - 2);
    ck_fails(calm_text_take(ctx, ctx->out, &text, &out, NULL), CALM_ENOMEM, "out of memory");
    ck_assert(!text.failed);
    calm_text_append(&text, "more", 4);
    ctx->out->fail_in = 1;
    ck_fails(calm_text_take(ctx, ctx->out, &text, &out, NULL), CALM_ENOMEM, "out of memory");
    ck_assert_ptr_null(text.data);
}
END_OF_TEST

TEST(numbers_have_the_digits_they_need)
{
    static const struct {
        double value;
        int least;
        const char *shown;
    } rows[] = {{0.05, 1, "0.05"},     {0.05, 15, "0.05"},  {1.0 / 3, 1, "0.3333333333333333"}, {100, 1, "1e+02"},
                {100, 15, "100"},      {-2.5, 1, "-2.5"},   {0.1 + 0.2, 15, "0.30000000000000004"},
                {1.0 / 3, 17, "0.33333333333333331"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        calm_text text;
        calm_text_init(&text);
        calm_text_number(&text, rows[i].value, rows[i].least);
        ck_assert_str_eq(text.data, rows[i].shown);
        calm_text_clear(&text);
    }
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
    calm_text_append(&text, "x", SIZE_MAX - 2);    /* the length overflows */
    calm_text_append(&text, "later", 5);
    ck_assert(text.failed);
    ck_assert_str_eq(text.data, "kept");
    ck_fails(calm_text_check(ctx, &text), CALM_ENOMEM, "out of memory");
    calm_text_clear(&text);
}
END_OF_TEST

/* A word is near at a distance of up to (characters of the longer + 2) / 3: words that are, and words that miss it
 * by one. */
TEST(nearness_is_levenshteins_distance)
{
    static const struct {
        const char *a, *b;
        bool near;
    } rows[] = {{"", "", true},                 {"", "abc", false},        {"kitten", "sitting", true},
                {"kitten", "sittng", false},    {"flaw", "lawn", true},    {"flaw", "lown", false},
                {"gptq", "gptq", true},         {"gtpq", "gptq", true},    {"rtn", "mkq", false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *found = rows[i].near ? rows[i].b : NULL, *back = rows[i].near ? rows[i].a : NULL;
        ck_assert_ptr_eq(calm_nearest(rows[i].a, &rows[i].b, 1), found);
        ck_assert_ptr_eq(calm_nearest(rows[i].b, &rows[i].a, 1), back);
    }
    char long_word[1000];
    memset(long_word, 'a', sizeof long_word - 1);
    long_word[sizeof long_word - 1] = '\0';
    const char *const long_names[] = {"", long_word};
    ck_assert_ptr_eq(calm_nearest(long_word, long_names + 1, 1), long_word);
    ck_assert_ptr_eq(calm_nearest("", long_names + 1, 1), long_word);    /* 63 of 999 bytes count */
    ck_assert_ptr_eq(calm_nearest(long_word, long_names, 2), long_word);
    ck_assert_str_eq(calm_nearest("gtpq", (const char *const[]){"gpqt", "gptq", "gtpx"}, 3), "gtpx");
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

TEST(sizes)
{
    static const struct {
        const char *text;
        size_t bytes;
    } cases[] = {{"2000000000", 2000000000},
                 {"2000000000B", 2000000000},
                 {"2000000b", 2000000},
                 {"1500K", 1500000},
                 {"1500KB", 1500000},
                 {"1500kb", 1500000},
                 {"800M", 800000000},
                 {"800MB", 800000000},
                 {"2G", 2000000000},
                 {"2GB", 2000000000},
                 {"2 GB", 2000000000},
                 {"2gb", 2000000000},
                 {"2T", 2000000000000},
                 {"2TB", 2000000000000},
                 {"2048Ki", (size_t)2048 << 10},
                 {"2048KiB", (size_t)2048 << 10},
                 {"7Mi", (size_t)7 << 20},
                 {"7MiB", (size_t)7 << 20},
                 {"7mib", (size_t)7 << 20},
                 {"3Gi", (size_t)3 << 30},
                 {"1.5GiB", (size_t)3 << 29},
                 {"0.5GB", 500000000},
                 {".5GB", 500000000},
                 {"1MB", 1000000},           /* the smallest */
                 {"1e9", 1000000000},
                 {"1000TB", 1000000000000000}};    /* the largest */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t bytes = 0;
        ck_ok(calm_size_parse(ctx, "memory", cases[i].text, &bytes));
        ck_assert_msg(bytes == cases[i].bytes, "%s: %zu", cases[i].text, bytes);
    }
}
END_OF_TEST

/* Each is an error that repeats the word. */
TEST(no_sizes)
{
    static const char *const texts[] = {"",       " ",     "GB",     "five",    "5x",       "5GBs",       "5 G B",
                                        "5,5GB",  "5GB 5", "5GB ",   "--5GB",   "-5GB",     "-1",         "-0",
                                        "0",      "0GB",   "999999", "999KB",   "0.9MB",    "1",          "5",
                                        "1001TB", "1e16",  "1e400",  "1e400GB", "-1e400",   "1e308GB",    "1e-400",
                                        "nan",    "nanGB", "-nan",   "inf",     "infinity", "INFINITYGB", "1e",
                                        "1eGB",   "0x",    "5Ti",    "5PB",     "5Mib.",    "\xff\xff",   "5\tGB"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        size_t bytes = 77;
        const calm_status status = calm_size_parse(ctx, "memory", texts[i], &bytes);
        ck_assert_msg(status == CALM_EARG, "\"%s\": %s, %zu bytes", texts[i], calm_status_name(status), bytes);
        ck_assert_uint_eq(bytes, 77);
        ck_assert_msg(strstr(ctx->message, test_format("`memory` %s: expected", texts[i])) != NULL, "%s", ctx->message);
        calm_ctx_clear_failure(ctx);
    }
}
END_OF_TEST

TEST(a_failed_format_is_remembered)
{
    CALM_SCOPED_TEXT(text);
    calm_text_printf(&text, "a%lc", (wint_t)0xd800);    /* no character: printf fails */
    ck_fails(calm_text_check(ctx, &text), CALM_ENOMEM, "out of memory");
}
END_OF_TEST

TEST(words_of_a_list)
{
    ck_assert(calm_text_listed("a bc d", ' ', "a") && calm_text_listed("a bc d", ' ', "bc") &&
              calm_text_listed("a bc d", ' ', "d"));
    ck_assert(!calm_text_listed("a bc d", ' ', "b") && !calm_text_listed("a bc d", ' ', "c") &&
              !calm_text_listed("a bc d", ' ', "bcd"));
    ck_assert(!calm_text_listed("a bc d", ' ', "a bc") && !calm_text_listed("", ' ', "a") &&
              !calm_text_listed(NULL, ' ', "a"));
    ck_assert(!calm_text_listed("a|b", ' ', "b") && calm_text_listed("a|b", '|', "b"));
}
END_OF_TEST

int main(void)
{
    return run_tests("text",
                     (const TTest *[]){sizes, no_sizes, text_grows_and_stays_terminated,
                                       bytes_may_hold_zeros_and_be_none, a_text_moves_to_an_arena,
                                       numbers_have_the_digits_they_need, a_failed_append_is_remembered,
                                       nearness_is_levenshteins_distance, nearest_finds_a_slip_and_nothing_far,
                                       a_failed_format_is_remembered, words_of_a_list, NULL});
}
