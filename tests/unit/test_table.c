/* Tables: columns aligned for a terminal, printable text, and the same rows as JSON. */
#include "cli/print.h"

#include "tests/support/harness.h"

static const char *text_of(const calm_table *table, size_t indent, bool fields)
{
    calm_text text;
    calm_text_init(&text);
    ck_ok(fields ? calm_table_write_fields(ctx, table, indent, &text) : calm_table_write(ctx, table, indent, &text));
    const char *copy = test_format("%s", text.data ? text.data : "");
    calm_text_clear(&text);
    return copy;
}

static calm_table new_table(void)
{
    calm_table table;
    table = (calm_table){0};
    calm_table_column(&table, "block", CALM_ALIGN_RIGHT);
    calm_table_column(&table, "name", CALM_ALIGN_LEFT);
    calm_table_column(&table, "loss", CALM_ALIGN_RIGHT);
    calm_table_column(&table, "on", CALM_ALIGN_LEFT);
    return table;
}

TEST(columns_are_as_wide_as_their_cells)
{
    calm_table table = new_table();
    CALM_CELLS(&table, CALM_INT(7));
    calm_table_text(&table, "gptq");
    CALM_CELLS(&table, CALM_SCIENTIFIC(1.25e-5, 2));
    CALM_CELLS(&table, CALM_BOOL(true));
    CALM_CELLS(&table, CALM_INT(123456));
    calm_table_format(&table, "%s-%d", "a", 5);
    CALM_CELLS(&table, CALM_FIXED(4.125, 1));
    CALM_CELLS(&table, CALM_BOOL(false));
    ck_assert_uint_eq(calm_table_rows(&table), 2);
    ck_assert_str_eq(text_of(&table, 2, false), "   block  name      loss  on\n"
                                                "  ------  ----  --------  ---\n"
                                                "       7  gptq  1.25e-05  yes\n"
                                                "  123456  a-5        4.1\n");
    ck_assert_str_eq(text_of(&table, 0, true), "block  7\nname   gptq\nloss   1.25e-05\non     yes\n"
                                               "block  123456\nname   a-5\nloss   4.1\n");
    calm_table_clear(&table);
}
END_OF_TEST

TEST(columns_and_cells_as_lists)
{
    calm_table one, other;
    one = (calm_table){0};
    other = (calm_table){0};
    calm_table_columns(&one, "name|#least agrees %|#kl|#n|on|note");
    CALM_CELLS(&one, CALM_TEXT("gptq"), CALM_FIXED(12.345, 1), CALM_SCIENTIFIC(1.5e-5, 1), CALM_INT((size_t)3),
               CALM_BOOL(true), CALM_TEXT(NULL));
    CALM_CELLS(&one, CALM_TEXT("rtn"), CALM_NUMBER(0.5));
    CALM_CELLS(&one, CALM_FIXED(NAN, 2), CALM_INT(-1), CALM_BOOL(false), {.type = CALM_CELL_EMPTY});
    static const char *const names[] = {"name", "least agrees %", "kl", "n", "on", "note"};
    for (size_t i = 0; i < 6; i++)
        calm_table_column(&other, names[i], i >= 1 && i <= 3 ? CALM_ALIGN_RIGHT : CALM_ALIGN_LEFT);
    calm_table_text(&other, "gptq");
    CALM_CELLS(&other, CALM_FIXED(12.345, 1));
    CALM_CELLS(&other, CALM_SCIENTIFIC(1.5e-5, 1));
    CALM_CELLS(&other, CALM_INT(3));
    CALM_CELLS(&other, CALM_BOOL(true));
    CALM_CELLS(&other, CALM_EMPTY);
    calm_table_text(&other, "rtn");
    CALM_CELLS(&other, CALM_NUMBER(0.5));
    CALM_CELLS(&other, CALM_EMPTY);
    CALM_CELLS(&other, CALM_INT(-1));
    CALM_CELLS(&other, CALM_BOOL(false));
    CALM_CELLS(&other, CALM_EMPTY);
    ck_assert_str_eq(text_of(&one, 0, false), "name  least agrees %       kl   n  on   note\n"
                                              "----  --------------  -------  --  ---  ----\n"
                                              "gptq            12.3  1.5e-05   3  yes\n"
                                              "rtn              0.5           -1\n");
    ck_assert_str_eq(text_of(&other, 0, false), text_of(&one, 0, false));
    calm_table_clear(&one);
    calm_table_clear(&other);
}
END_OF_TEST

TEST(headings_without_rows)
{
    calm_table table = new_table();
    ck_assert_str_eq(text_of(&table, 0, false), "block  name  loss  on\n-----  ----  ----  --\n");
    ck_assert_str_eq(text_of(&table, 0, true), "");
    calm_table_clear(&table);
}
END_OF_TEST

TEST(numbers_of_six_digits)
{
    calm_table table;
    table = (calm_table){0};
    calm_table_column(&table, "a\033[1m\n", CALM_ALIGN_RIGHT);    /* a heading is escaped like a cell */
    CALM_CELLS(&table, CALM_NUMBER(1.0 / 3));
    CALM_CELLS(&table, CALM_NUMBER(1.25e-9));
    CALM_CELLS(&table, CALM_NUMBER(NAN));
    ck_assert_str_eq(text_of(&table, 0, false), "a\\u{1b}[1m\\n\n------------\n    0.333333\n    1.25e-09\n\n");
    ck_assert_str_eq(text_of(&table, 0, true), "a\\u{1b}[1m\\n  0.333333\na\\u{1b}[1m\\n  1.25e-09\n");
    calm_table_clear(&table);
}
END_OF_TEST

TEST(empty_columns_can_go)
{
    calm_table table = new_table();
    calm_table_drop_empty(&table);
    ck_assert_uint_eq(table.n_columns, 4);    /* no rows */
    for (int row = 0; row < 2; row++) {
        CALM_CELLS(&table, CALM_EMPTY);
        calm_table_text(&table, row ? "x" : "");
        CALM_CELLS(&table, CALM_FIXED(NAN, 1));
        CALM_CELLS(&table, CALM_BOOL(false));
    }
    calm_table_drop_empty(&table);
    ck_assert_str_eq(text_of(&table, 0, false), "name\n----\n\nx\n");
    calm_table_clear(&table);
}
END_OF_TEST

TEST(named_columns_stay)
{
    calm_table table = new_table();
    for (int row = 0; row < 2; row++)
        CALM_CELLS(&table, CALM_INT(row), CALM_TEXT("x"), CALM_FIXED(0.5, 1), CALM_BOOL(true));
    const char *first = table.headings[0].name, *second = table.headings[1].name;
    calm_table_keep(&table, test_format("%s|no such", second));
    ck_assert_uint_eq(table.n_columns, 1);
    ck_assert_str_eq(table.headings[0].name, second);
    ck_assert_uint_eq(calm_table_rows(&table), 2);
    /* A prefix of a name is no name. */
    calm_table_keep(&table, test_format("%s", first));
    ck_assert_uint_eq(table.n_columns, 0);
    calm_table_clear(&table);
}
END_OF_TEST

/* Combining marks have no width, wide characters two columns; unprintable characters are escaped; invalid UTF-8 is
 * replaced. */
TEST(widths_of_text)
{
    static const char *const texts[] = {"plain",  "\xc3\xbc\x62", "u\xcc\x88z", "\xe4\xb8\xad\xe6\x96\x87",
                                        "a\nb\t", "\x1b[0m",      "x\xffy"};
    calm_table table;
    table = (calm_table){0};
    calm_table_column(&table, "t", CALM_ALIGN_LEFT);
    calm_table_column(&table, "n", CALM_ALIGN_LEFT);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        calm_table_text(&table, texts[i]);
        calm_table_text(&table, "|");
    }
    ck_assert_str_eq(text_of(&table, 0, false), "t          n\n---------  -\n"
                                                "plain      |\n"
                                                "\xc3\xbc\x62         |\n"
                                                "u\xcc\x88z         |\n"
                                                "\xe4\xb8\xad\xe6\x96\x87       |\n"
                                                "a\\nb\\t     |\n"
                                                "\\u{1b}[0m  |\n"
                                                "x\xef\xbf\xbdy        |\n");
    calm_table_clear(&table);
}
END_OF_TEST

TEST(json_keeps_types_and_digits)
{
    calm_table table = new_table();
    calm_json *rows, *row;
    CALM_CELLS(&table, CALM_INT(-3));
    calm_table_text(&table, "a\n\"\xff");
    CALM_CELLS(&table, CALM_SCIENTIFIC(0.1234567890123, 1));
    CALM_CELLS(&table, CALM_BOOL(false));
    CALM_CELLS(&table, CALM_EMPTY);
    calm_table_text(&table, NULL);
    CALM_CELLS(&table, CALM_FIXED(NAN, 3));
    CALM_CELLS(&table, CALM_BOOL(true));
    CALM_CELLS(&table, CALM_INT(9));    /* an incomplete row does not count */
    rows = calm_rows_json(ctx, &table);
    ck_ok(ctx->status);
    ck_assert_uint_eq(calm_table_rows(&table), 0);    /* it is released */
    ck_assert_uint_eq(calm_json_size(rows), 2);
    row = (calm_json *)(uintptr_t)calm_json_at(rows, 0);
    ck_assert_int_eq(calm_json_int(calm_json_get(row, "block"), 0), -3);
    ck_assert_str_eq(calm_json_string(calm_json_get(row, "name"), ""), "a\n\"\xef\xbf\xbd");
    ck_assert(calm_json_number(calm_json_get(row, "loss"), 0) == 0.1234567890123);
    ck_assert_int_eq(calm_json_typeof(calm_json_get(row, "on")), CALM_JSON_BOOL);
    row = (calm_json *)(uintptr_t)calm_json_at(rows, 1);
    ck_assert_int_eq(calm_json_typeof(calm_json_get(row, "block")), CALM_JSON_NULL);
    ck_assert_int_eq(calm_json_typeof(calm_json_get(row, "name")), CALM_JSON_NULL);
    ck_assert_int_eq(calm_json_typeof(calm_json_get(row, "loss")), CALM_JSON_NULL);
    ck_assert(calm_json_bool(calm_json_get(row, "on"), false));
    calm_json_free(rows);
}
END_OF_TEST

static const char *written(const calm_table *table, calm_status (*write)(calm_ctx *, const calm_table *, calm_text *))
{
    calm_text text;
    calm_text_init(&text);
    ck_ok(write(ctx, table, &text));
    const char *copy = test_format("%s", text.data ? text.data : "");
    calm_text_clear(&text);
    return copy;
}

/* RFC 4180, section 2; numbers read back the same. */
TEST(csv)
{
    calm_table table = new_table();
    ck_assert_str_eq(written(&table, calm_table_write_csv), "block,name,loss,on\r\n");
    CALM_CELLS(&table, CALM_INT(-3));
    calm_table_text(&table, "smooth(alpha=0.5,x=1)+\"q\"");
    CALM_CELLS(&table, CALM_SCIENTIFIC(0.1, 1));
    CALM_CELLS(&table, CALM_BOOL(true));
    CALM_CELLS(&table, CALM_EMPTY);
    calm_table_text(&table, "two\nlines");
    CALM_CELLS(&table, CALM_FIXED(0.1 + 0.2, 2));
    CALM_CELLS(&table, CALM_BOOL(false));
    ck_assert_str_eq(written(&table, calm_table_write_csv),
                     "block,name,loss,on\r\n-3,\"smooth(alpha=0.5,x=1)+\"\"q\"\"\",0.1,true\r\n"
                     ",\"two\nlines\",0.30000000000000004,false\r\n");
    calm_table_clear(&table);
}
END_OF_TEST

TEST(markdown)
{
    calm_table table = new_table();
    CALM_CELLS(&table, CALM_INT(7));
    calm_table_text(&table, "a|b<c");
    CALM_CELLS(&table, CALM_FIXED(0.125, 1));
    CALM_CELLS(&table, CALM_BOOL(false));
    ck_assert_str_eq(written(&table, calm_table_write_markdown),
                     "| block | name | loss | on |\n|---:|---|---:|---|\n| 7 | a\\|b\\<c | 0.1 |  |\n");
    calm_table_clear(&table);
}
END_OF_TEST

TEST(many_rows)
{
    calm_table table;
    table = (calm_table){0};
    for (int c = 0; c < 40; c++)
        calm_table_column(&table, test_format("c%d", c), CALM_ALIGN_RIGHT);
    for (int i = 0; i < 40 * 1000; i++)
        CALM_CELLS(&table, CALM_INT(i));
    ck_assert_uint_eq(calm_table_rows(&table), 1000);
    ck_assert_ptr_nonnull(strstr(text_of(&table, 0, false), "39999\n"));
    calm_table_clear(&table);
}
END_OF_TEST

TEST(missing_memory_is_reported)
{
    calm_table table = new_table();
    calm_text text;
    table.arena.fail_in = 1;
    calm_table_text(&table, "x");
    calm_text_init(&text);
    ck_fails(calm_table_write(ctx, &table, 0, &text), CALM_ENOMEM, "table");
    ck_assert_ptr_null(calm_rows_json(ctx, &table));
    ck_fails(ctx->status, CALM_ENOMEM, "table");
    calm_text_clear(&text);
}
END_OF_TEST

/* In 40 columns text is broken into lines, at blanks if there are any; numbers stay whole. */
TEST(narrow_tables_break_words)
{
    CALM_SCOPED_TABLE(table);
    calm_table_columns(&table, "#block|algorithm|reason");
    CALM_CELLS(&table, CALM_INT(1234567), CALM_TEXT("gptq"), CALM_TEXT("least cka_token of 3, no other within 1.05"));
    CALM_CELLS(&table, CALM_INT(1), CALM_TEXT("smoothquant-gptq-of-a-long-chain"), CALM_TEXT(""));
    for (int more = 0; more < 2; more++)
        CALM_CELLS(&table, CALM_INT(1), CALM_TEXT("rtn"), CALM_EMPTY);
    ctx->columns = 40;
    ck_assert_str_eq(text_of(&table, 0, false), "  block  algorithm       reason\n"
                                                "-------  --------------  ---------------\n"
                                                "1234567  gptq            least cka_token\n"
                                                "                         of 3, no other\n"
                                                "                         within 1.05\n"
                                                "      1  smoothquant-gp\n"
                                                "         tq-of-a-long-c\n"
                                                "         hain\n"
                                                "      1  rtn\n"
                                                "      1  rtn\n");
    ctx->columns = 200;
    ck_assert_ptr_nonnull(strstr(text_of(&table, 0, false), "gptq                              least cka_token of 3"));
    ctx->columns = 0;
}
END_OF_TEST

/* Any table of text and numbers keeps to the limit: broken into lines, or as lists of cells; nothing is lost. */
TEST(narrow_tables_keep_to_the_limit)
{
    static const char *const words[] = {"a", "two words", "\u4e2d\u6587\u5b57\u6f22\u5b57\u6f22\u5b57\u6f22", "",
                                        "averyveryveryverylongwordwithoutanyblanksinside", "  blanks  before"};
    for (size_t n = 1; n < 12; n++)
        for (size_t limit = 40; limit < 100; limit += 7) {
            CALM_SCOPED_TABLE(table);
            for (size_t c = 0; c < n; c++)
                calm_table_column(&table, test_format("heading %zu", c), c % 3 ? CALM_ALIGN_LEFT : CALM_ALIGN_RIGHT);
            for (size_t c = 0; c < 3 * n; c++) {
                if (c % 3 == 0)
                    CALM_CELLS(&table, CALM_FIXED(1.5 * (double)c, 3));
                else
                    CALM_CELLS(&table, CALM_TEXT(words[c % 6]));
            }
            ctx->columns = limit;
            const char *text = text_of(&table, 2, false);
            ctx->columns = 0;
            char *copy = test_format("%s", text);
            size_t letters = 0;
            for (char *rest, *line = strtok_r(copy, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
                size_t columns;
                CALM_SCOPED_TEXT(shown);
                calm_table_printable(line, &shown, &columns);
                ck_assert_msg(columns <= limit, "%zu columns of %zu: %s", columns, limit, line);
            }
            for (const char *at = text; *at; at++)
                letters += *at == 'w';
            for (size_t c = 0; c < 3 * n; c++)
                for (const char *at = c % 3 ? words[c % 6] : ""; *at; at++)
                    letters -= *at == 'w';
            ck_assert_uint_eq(letters, 0);
        }
}
END_OF_TEST

TEST(a_table_too_wide_is_a_list)
{
    CALM_SCOPED_TABLE(table);
    calm_table_columns(&table, "#one_minus_cka_token|#one_minus_cka|token");
    CALM_CELLS(&table, CALM_FIXED(0.5, 2), CALM_FIXED(0.25, 2), CALM_TEXT("a long text that takes two lines"));
    CALM_CELLS(&table, CALM_FIXED(1, 2), CALM_EMPTY, CALM_TEXT("b"));
    ctx->columns = 40;
    ck_assert_str_eq(text_of(&table, 2, false), "  one_minus_cka_token  0.50\n"
                                                "  one_minus_cka        0.25\n"
                                                "  token                a long text that\n"
                                                "                       takes two lines\n"
                                                "\n"
                                                "  one_minus_cka_token  1.00\n"
                                                "  token                b\n");
    ctx->columns = 0;
}
END_OF_TEST

TEST(few_rows_keep_their_words_whole)
{
    for (int rows = 1; rows <= 4; rows++) {
        CALM_SCOPED_TABLE(table);
        CALM_SCOPED_TEXT(out);
        calm_table_columns(&table, "#id|architecture|path");
        for (int row = 0; row < rows; row++)
            CALM_CELLS(&table, CALM_INT(row), CALM_TEXT("Qwen3ForCausalLM"), CALM_TEXT("/models/of/a/machine/qwen"));
        ctx->columns = 40;
        ck_ok(calm_table_write(ctx, &table, 2, &out));
        ctx->columns = 0;
        /* A list, unless that is longer than broken lines. */
        ck_assert_int_eq(strstr(out.data, "  architecture  Qwen3ForCausalLM\n") != NULL, rows <= 3);
        ck_assert_int_eq(strstr(out.data, "----") != NULL, rows > 3);
    }
}
END_OF_TEST

TEST(chains_are_cut_between_parts)
{
    CALM_SCOPED_TABLE(table);
    calm_table_columns(&table, "#one_minus_cka_token|chain");
    CALM_CELLS(&table, CALM_FIXED(0.5, 2), CALM_TEXT("absmax+gptq+restarts+averylongname"));
    ctx->columns = 40;
    ck_assert_str_eq(text_of(&table, 0, false), "one_minus_cka_token  chain\n"
                                                "-------------------  -------------------\n"
                                                "               0.50  absmax+gptq+\n"
                                                "                     restarts+\n"
                                                "                     averylongname\n");
    ctx->columns = 0;
}
END_OF_TEST

/* Columns that may be dropped are, if cells would need several lines, and only then: the first choice that helps.
 * The rows are 2 + 19 + 2 + 13 + 2 + 5 + 2 + 17 columns wide; in 57 the last cell has several lines. */
TEST(columns_give_way)
{
    static const char *const choices[] = {"one_minus_cka|no such", "place", "crest|place"};
    static const struct {
        size_t limit, n_choices, kept;
    } list[] = {{0, 3, 4}, {62, 3, 4}, {61, 3, 3}, {47, 3, 3}, {46, 3, 3}, {43, 3, 3}, {42, 3, 2}, {40, 3, 2},
                {46, 1, 3}, {46, 0, 4}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        CALM_SCOPED_TABLE(table);
        calm_table_columns(&table, "#one_minus_cka_token|#one_minus_cka|#crest|place");
        CALM_CELLS(&table, CALM_FIXED(0.5, 2), CALM_FIXED(0.25, 2), CALM_FIXED(3, 1), CALM_TEXT("five words in all"));
        CALM_CELLS(&table, CALM_FIXED(0.5, 2), CALM_FIXED(0.25, 2), CALM_FIXED(3, 1), CALM_TEXT("a cell"));
        ctx->columns = list[i].limit;
        ck_ok(calm_table_narrow(ctx, &table, 2, choices, list[i].n_choices));
        ctx->columns = 0;
        ck_assert_msg(table.n_columns == list[i].kept, "%zu columns: %zu stay", list[i].limit, table.n_columns);
        ck_assert_int_eq(strcmp(table.headings[1].name, "crest") == 0, list[i].limit == 61 || list[i].limit == 47 ||
                                                                           list[i].n_choices == 1);
        ck_assert_str_eq(table.headings[0].name, "one_minus_cka_token");
        calm_table_drop(&table, "crest|one_minus_cka|one_minus_cka_token");    /* one stays */
        ck_assert_uint_eq(table.n_columns, 1);
    }
}
END_OF_TEST

/* The last columns are dropped if there are several rows, but never so many that only two are left. */
TEST(last_columns_go)
{
    static const struct {
        size_t limit, rows, kept;
        const char *left;
    } list[] = {{0, 5, 5, ""}, {80, 5, 5, ""}, {61, 5, 4, "crest"}, {60, 5, 3, "one_minus_cka, crest"},
                {40, 5, 5, ""}, {61, 3, 5, ""}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        CALM_SCOPED_TABLE(table);
        CALM_SCOPED_TEXT(left);
        calm_table_columns(&table, "#block|#largest_quantile|#one_minus_cka_token|#one_minus_cka|#crest");
        for (size_t row = 0; row < list[i].rows; row++)
            CALM_CELLS(&table, CALM_INT((int64_t)row), CALM_FIXED(1, 2), CALM_FIXED(0.5, 2), CALM_FIXED(0.25, 2),
                       CALM_FIXED(3, 1));
        ctx->columns = list[i].limit;
        ck_ok(calm_table_shorten(ctx, &table, 2, &left));
        ctx->columns = 0;
        ck_assert_uint_eq(table.n_columns, list[i].kept);
        ck_assert_str_eq(left.data ? left.data : "", list[i].left);
    }
}
END_OF_TEST

/* Names are not broken, sentences are. */
TEST(names_stay_whole)
{
    static const struct {
        size_t limit;
        const char *left;
    } list[] = {{59, ""}, {58, "crest"}, {52, "crest"}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        CALM_SCOPED_TABLE(table);
        CALM_SCOPED_TEXT(left);
        CALM_SCOPED_TEXT(text);
        calm_table_columns(&table, "subject|reason|#size|#crest");
        for (int64_t row = 0; row < 5; row++)
            CALM_CELLS(&table, CALM_TEXT("a name of 20 letters"), CALM_TEXT("a sentence of many words that say why"),
                       CALM_INT(row), CALM_FIXED(3, 1));
        ctx->columns = list[i].limit;
        ck_ok(calm_table_shorten(ctx, &table, 0, &left));
        ck_ok(calm_table_write(ctx, &table, 0, &text));
        ctx->columns = 0;
        ck_assert_str_eq(left.data ? left.data : "", list[i].left);
        ck_assert_ptr_nonnull(strstr(text.data, "\na name of 20 letters  "));
    }
}
END_OF_TEST

/* A digest that does not fit is cut, since the rest on a separate line says nothing. */
TEST(digests_are_cut)
{
    static const char digest[] = "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8";
    CALM_SCOPED_TABLE(table);
    CALM_SCOPED_TEXT(whole);
    CALM_SCOPED_TEXT(cut);
    calm_table_columns(&table, "tokens_digest");
    calm_table_text(&table, digest);
    ck_ok(calm_table_write_fields(ctx, &table, 2, &whole));
    ck_assert_str_eq(whole.data, test_format("  tokens_digest  %s\n", digest));
    ctx->columns = 80;
    ck_ok(calm_table_write_fields(ctx, &table, 2, &cut));
    ctx->columns = 0;
    ck_assert_str_eq(cut.data, test_format("  tokens_digest  %.60s...\n", digest));
}
END_OF_TEST

TEST(sentences_are_folded)
{
    static const char lines[] = "A sentence that is longer than forty columns are.\nshort\n  indented, and longer than "
                                "forty columns too\n  label  what stands behind it, in two lines\n";
    CALM_SCOPED_TEXT(whole);
    CALM_SCOPED_TEXT(folded);
    calm_table_fold(ctx, lines, &whole);
    ck_assert_str_eq(whole.data, lines);
    ctx->columns = 40;
    calm_table_fold(ctx, lines, &folded);
    ctx->columns = 0;
    ck_assert_str_eq(folded.data, "A sentence that is longer than forty\n  columns are.\nshort\n"
                                  "  indented, and longer than forty\n    columns too\n"
                                  "  label  what stands behind it, in two\n         lines\n");
    /* Text joined by an arrow stays on one line. */
    CALM_SCOPED_TEXT(joined);
    ctx->columns = 40;
    calm_table_fold(ctx, "KL 0.0181, a perplexity of 31.52 -> 31.89\n", &joined);
    ctx->columns = 0;
    ck_assert_str_eq(joined.data, "KL 0.0181, a perplexity of\n  31.52 -> 31.89\n");
}
END_OF_TEST

int main(void)
{
    return run_tests("table",
                     (const TTest *[]){columns_are_as_wide_as_their_cells, columns_and_cells_as_lists,
                                       headings_without_rows, numbers_of_six_digits,
                                       empty_columns_can_go, named_columns_stay, widths_of_text,
                                       json_keeps_types_and_digits, csv, markdown,
                                       many_rows, missing_memory_is_reported, narrow_tables_break_words,
                                       narrow_tables_keep_to_the_limit, a_table_too_wide_is_a_list,
                                       few_rows_keep_their_words_whole, chains_are_cut_between_parts, columns_give_way,
                                       last_columns_go, names_stay_whole, digests_are_cut,
                                       sentences_are_folded, NULL});
}
