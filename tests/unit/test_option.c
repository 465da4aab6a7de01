/* Option tables: defaults, parsing, ranges, suggestions, the canonical form. */
#include "ptq/base/option.h"

#include "tests/support/harness.h"

typedef struct settings {
    bool act_order;
    long long rounds;
    double damp;
    int order;
    const char *text;
    long long unset;
} settings;

static const calm_option table[] = {
    {.name = "act_order", .offset = offsetof(settings, act_order), .type = CALM_OPTION_BOOL, .fallback = "true"},
    {.name = "rounds", .offset = offsetof(settings, rounds), .type = CALM_OPTION_INT, .fallback = "8", .min = 1,
     .max = 100},
    {.name = "damp", .offset = offsetof(settings, damp), .type = CALM_OPTION_DOUBLE, .fallback = "0.01", .max = 1},
    {.name = "order", .offset = offsetof(settings, order), .type = CALM_OPTION_ENUM, .fallback = "activation",
     .values = "none|activation|diag"},
    {.name = "text", .offset = offsetof(settings, text), .type = CALM_OPTION_STRING, .max = 40,
     .metavar = "TEXT"},
    {.name = "unset", .offset = offsetof(settings, unset), .type = CALM_OPTION_INT, .fallback = "-1", .min = 1,
     .max = 9},
    {0},
};

static settings defaults(void)
{
    settings s;
    memset(&s, 0xff, sizeof s);
    ck_ok(calm_options_init(ctx, table, &s));
    return s;
}

static calm_status set(settings *s, const char *name, const char *value)
{
    return calm_option_set(ctx, table, s, "gptq", name, value);
}

static const char *canonical(const settings *s)
{
    calm_text text;
    calm_text_init(&text);
    calm_options_canonical(table, s, &text);
    const char *copy = test_format("%s", text.data);
    calm_text_clear(&text);
    return copy;
}

TEST(defaults_come_from_the_table)
{
    settings s = defaults();
    ck_assert(s.act_order);
    ck_assert_int_eq(s.rounds, 8);
    ck_near(s.damp, 0.01, 0);
    ck_assert_int_eq(s.order, 1);
    ck_assert_ptr_null(s.text);
    ck_assert_int_eq(s.unset, -1);
    ck_assert_uint_eq(calm_options_count(table), 6);
    ck_assert_uint_eq(calm_options_count(NULL), 0);
}
END_OF_TEST

TEST(no_default_means_zero)
{
    static const calm_option plain[] = {
        {.name = "a", .offset = offsetof(settings, act_order), .type = CALM_OPTION_BOOL},
        {.name = "b", .offset = offsetof(settings, rounds), .type = CALM_OPTION_INT},
        {.name = "c", .offset = offsetof(settings, damp), .type = CALM_OPTION_DOUBLE},
        {.name = "d", .offset = offsetof(settings, order), .type = CALM_OPTION_ENUM, .values = "x|y"},
        {.name = NULL},
    };
    settings s;
    memset(&s, 0xff, sizeof s);
    ck_ok(calm_options_init(ctx, plain, &s));
    ck_assert(!s.act_order);
    ck_assert_int_eq(s.rounds, 0);
    ck_near(s.damp, 0, 0);
    ck_assert_int_eq(s.order, 0);
}
END_OF_TEST

TEST(values_are_parsed_by_type)
{
    settings s = defaults();
    ck_ok(set(&s, "act_order", "false"));
    ck_ok(set(&s, "rounds", "100"));
    ck_ok(set(&s, "damp", "2.5e-3"));
    ck_ok(set(&s, "order", "diag"));
    ck_ok(set(&s, "text", "a b=c"));
    ck_assert(!s.act_order);
    ck_assert_int_eq(s.rounds, 100);
    ck_near(s.damp, 2.5e-3, 0);
    ck_assert_int_eq(s.order, 2);
    ck_assert_str_eq(s.text, "a b=c");
    ck_assert_str_eq(canonical(&s),
                     "act_order=false,rounds=100,damp=0.0025,order=diag,text=a b=c,unset=-1");
}
END_OF_TEST

TEST(a_string_is_copied)
{
    settings s = defaults();
    char value[] = "first";
    ck_ok(set(&s, "text", value));
    strcpy(value, "gone!");
    ck_assert_str_eq(s.text, "first");
}
END_OF_TEST

TEST(bad_values_name_owner_option_and_value)
{
    static const struct {
        const char *name, *value;
    } rows[] = {{"act_order", "yes"}, {"act_order", ""},    {"rounds", "8x"},  {"rounds", ""},
                {"rounds", "1.5"},    {"rounds", "0"},      {"rounds", "101"}, {"rounds", "99999999999999999999"},
                {"damp", "abc"},      {"damp", "nan"},      {"damp", "inf"},   {"damp", "-0.1"},
                {"damp", "1.0001"},   {"damp", "1e999"},    {"order", "diago"}, {"order", ""},
                {"order", "none|activation"},               {"unset", "0"},
                {"text", ""}};
    settings s = defaults();
    const char *before = canonical(&s);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        calm_status status = set(&s, rows[i].name, rows[i].value);
        ck_assert_msg(status == CALM_EARG, "%s=%s: %s", rows[i].name, rows[i].value, calm_status_name(status));
        ck_assert_ptr_nonnull(strstr(ctx->message, "gptq"));
        ck_assert_ptr_nonnull(strstr(ctx->message, rows[i].name));
        ck_assert_ptr_nonnull(strstr(ctx->message, rows[i].value));
        calm_ctx_clear_failure(ctx);
    }
    ck_assert_str_eq(canonical(&s), before);
}
END_OF_TEST

TEST(an_unknown_name_suggests_the_nearest)
{
    settings s = defaults();
    ck_fails(set(&s, "round", "8"), CALM_EARG, "did you mean \"rounds\"");
    ck_fails(set(&s, "dmap", "1"), CALM_EARG, "did you mean \"damp\"");
    ck_fails(set(&s, "wholly_different", "1"), CALM_EARG, "unknown option \"wholly_different\"");
    ck_fails(calm_option_set(ctx, NULL, &s, "nearest", "x", "1"), CALM_EARG, "it takes none");
}
END_OF_TEST

TEST(canonical_numbers_read_back_the_same)
{
    static const char *const values[] = {"0.1", "0.3", "1", "0.333333333333333314829616256247", "1e-300",
                                         "0.30000000000000004", "0"};
    static const char *const expected[] = {"0.1", "0.3", "1", "0.3333333333333333", "1e-300",
                                           "0.30000000000000004", "0"};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        settings s = defaults();
        ck_ok(set(&s, "damp", values[i]));
        ck_assert_ptr_nonnull(strstr(canonical(&s), test_format("damp=%s,", expected[i])));
    }
}
END_OF_TEST

/* ---- lists and ranges ---- */

typedef struct lists {
    calm_words words, colours, files;
    calm_pairs pairs;
    calm_numbers numbers;
    calm_range range;
} lists;

static const calm_option list_table[] = {
    {.name = "words", .offset = offsetof(lists, words), .type = CALM_OPTION_WORDS, .max = 3},
    {.name = "colours", .offset = offsetof(lists, colours), .type = CALM_OPTION_WORDS, .values = "red|blue"},
    {.name = "files", .offset = offsetof(lists, files), .type = CALM_OPTION_FILES, .max = 2},
    {.name = "pairs", .offset = offsetof(lists, pairs), .type = CALM_OPTION_PAIRS, .max = 2, .metavar = "UNIT=NAME"},
    {.name = "numbers", .offset = offsetof(lists, numbers), .type = CALM_OPTION_NUMBERS, .min = 1, .max = 32},
    {.name = "range", .offset = offsetof(lists, range), .type = CALM_OPTION_RANGE, .max = 99},
    {0},
};

TEST(lists_grow_item_by_item)
{
    lists l;
    calm_text text;
    ck_ok(calm_options_init(ctx, list_table, &l));
    ck_assert_uint_eq(l.words.n, 0);
    ck_assert(!l.range.given);
    ck_ok(calm_option_set(ctx, list_table, &l, "x", "words", "a,b(c,d)"));
    ck_ok(calm_option_set(ctx, list_table, &l, "x", "words", "e"));
    ck_ok(calm_option_set(ctx, list_table, &l, "x", "colours", "blue"));
    ck_ok(calm_option_set(ctx, list_table, &l, "x", "files", "a, b(.txt"));    /* one name, whatever it contains */
    ck_ok(calm_option_set(ctx, list_table, &l, "x", "pairs", "*.down=gptq(a=1)"));
    ck_ok(calm_option_set(ctx, list_table, &l, "x", "numbers", "3.5,2"));
    ck_ok(calm_option_set(ctx, list_table, &l, "x", "range", "3-7"));
    ck_assert_uint_eq(l.files.n, 1);
    ck_assert_str_eq(l.files.of[0], "a, b(.txt");
    ck_assert_uint_eq(l.words.n, 3);
    ck_assert_str_eq(l.words.of[1], "b(c,d)");
    ck_assert_str_eq(l.words.of[2], "e");
    ck_assert_str_eq(l.pairs.of[0].key, "*.down");
    ck_assert_str_eq(l.pairs.of[0].value, "gptq(a=1)");
    ck_near(l.numbers.of[0], 3.5, 0);
    ck_assert_int_eq(l.range.first, 3);
    ck_assert_int_eq(l.range.last, 7);
    calm_text_init(&text);
    calm_options_canonical(list_table, &l, &text);
    ck_assert_str_eq(text.data, "words=a,b(c,d),e,colours=blue,files=a, b(.txt,"
                                "pairs=*.down=gptq(a=1),numbers=3.5,2,range=3-7");
    calm_text_clear(&text);
    ck_ok(calm_option_set_one(ctx, &list_table[0], &l, "x", "z", true));    /* replaced */
    ck_assert_uint_eq(l.words.n, 1);
    ck_assert_str_eq(l.words.of[0], "z");
    ck_ok(calm_option_set(ctx, list_table, &l, "x", "range", "5"));
    ck_assert_int_eq(l.range.first, 5);
    ck_assert_int_eq(l.range.last, 5);
}
END_OF_TEST

TEST(bad_items_are_named)
{
    static const struct {
        const char *name, *value, *message;
    } rows[] = {{"words", "a,b,c,d", "at most 3 items"},      {"words", "", "expected a list, found \"\""},
                     {"colours", "red,green", "expected red|blue, found \"green\""}, {"files", "", "expected"},
                {"pairs", "gptq", "expected UNIT=NAME"},       {"pairs", "", "expected UNIT=NAME"},
                      {"pairs", "=gptq", "expected UNIT=NAME"},
                {"pairs", "a=", "expected UNIT=NAME"},         {"pairs", "a=1,b=2,c=3", "at most 2 items"},
                {"numbers", "1,", "expected numbers"},         {"numbers", "nan", "expected numbers"},
                {"numbers", "33", "outside"},                  {"numbers", "", "expected numbers"},
                {"range", "3-2", "FIRST-LAST"},                {"range", "-1", "FIRST-LAST"},
                {"range", "1-100", "FIRST-LAST"},              {"range", "1-", "FIRST-LAST"},
                {"range", "0-", "FIRST-LAST"},                 {"range", "0- 2", "FIRST-LAST"},
                {"range", "99999999999999999999", "FIRST-LAST"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lists l;
        ck_ok(calm_options_init(ctx, list_table, &l));
        ck_fails(calm_option_set(ctx, list_table, &l, "calm x", rows[i].name, rows[i].value), CALM_EARG,
                 rows[i].message);
    }
}
END_OF_TEST

TEST(a_list_is_read_item_by_item)
{
    static const struct {
        const char *list, *items[4];
    } rows[] = {{"", {NULL}},
                {"rtn", {"rtn"}},
                {"rtn,gptq(damp=0.1,order=none),mkq", {"rtn", "gptq(damp=0.1,order=none)", "mkq"}},
                {"a(b(c,d),e),f", {"a(b(c,d),e)", "f"}},
                {"a(b,c", {"a(b,c"}},
                {",a,,b", {"", "a", "", "b"}},
                {"a,", {"a"}},
                {",", {""}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *at = rows[i].list;
        char *item;
        for (size_t k = 0; k < 4 && rows[i].items[k]; k++) {
            ck_ok(calm_list_next(ctx, &at, &item));
            ck_assert_str_eq(item, rows[i].items[k]);
        }
        ck_ok(calm_list_next(ctx, &at, &item));
        ck_assert_ptr_null(item);
        ck_assert_str_eq(at, "");
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("option",
                     (const TTest *[]){defaults_come_from_the_table, no_default_means_zero, values_are_parsed_by_type,
                                       a_string_is_copied, bad_values_name_owner_option_and_value,
                                       an_unknown_name_suggests_the_nearest, canonical_numbers_read_back_the_same,
                                       a_list_is_read_item_by_item, lists_grow_item_by_item,
                                       bad_items_are_named, NULL});
}
