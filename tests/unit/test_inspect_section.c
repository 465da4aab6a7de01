/* Sections: one query as text, JSON and CSV; CSV of many rows in bounded memory. */
#include "ptq/io/json.h"
#include "tests/support/harness.h"
#include "cli/print.h"
#include "tests/support/inspect_sample.h"

static const char *sql(const char *path, const char *select, calm_inspect_form form)
{
    return inspect_shown(path, "sql", select, NULL, form);
}

TEST(rows_of_the_user)
{
    const char *path = inspect_sample();
    const char *select =
        "SELECT id, id * 1.5 AS x, NULL AS n, 'a\"b,c' AS t, X'00ff' AS b, id AS \"id\" FROM run WHERE id < 3";
    ck_assert_str_eq(sql(path, select, CALM_INSPECT_TEXT), "id    x  n  t      b        id:1\n"
                                                           "--  ---  -  -----  -------  ----\n"
                                                           " 1  1.5     a\"b,c  X'00FF'     1\n"
                                                           " 2    3     a\"b,c  X'00FF'     2\n");
    ck_assert_str_eq(sql(path, select, CALM_INSPECT_CSV), "id,x,n,t,b,id:1\r\n1,1.5,,\"a\"\"b,c\",X'00FF',1\r\n"
                                                          "2,3,,\"a\"\"b,c\",X'00FF',2\r\n");
    calm_json *root;
    const char *json = sql(path, select, CALM_INSPECT_JSON);
    ck_ok(calm_json_parse(ctx, "stdout", json, strlen(json), &root));
    const calm_json *row = calm_json_at(calm_json_get(root, "sql"), 1);
    ck_assert_uint_eq(calm_json_size(row), 6);
    ck_assert_int_eq(calm_json_int(calm_json_get(row, "id:1"), 0), 2);
    ck_assert_int_eq(calm_json_typeof(calm_json_get(row, "n")), CALM_JSON_NULL);
    calm_json_free(root);
    ck_assert_str_eq(sql(path, "SELECT 1 AS a WHERE 0", CALM_INSPECT_CSV), "a\r\n");
    ck_assert_str_eq(sql(path, "SELECT 1 AS a WHERE 0", CALM_INSPECT_TEXT), "a\n-\n");
}
END_OF_TEST

TEST(nothing_raw_reaches_a_terminal)
{
    const char *path = inspect_sample();
    const char *text = sql(path, "SELECT 'x' || char(27) || '[2J' AS \"h\033[1m\", char(10) AS n", CALM_INSPECT_TEXT);
    ck_lacks(text, "\033");
    ck_has(text, "h\\u{1b}[1m");
    ck_has(text, "x\\u{1b}[2J");
}
END_OF_TEST

TEST(csv_streams)
{
    const char *path = inspect_sample(),
               *args[] = {"WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c LIMIT "
                          "200000) SELECT i, 'some text of a row' AS t FROM c"},
               *out;
    const calm_inspect_query query = {.what = "sql", .args = args, .n_args = 1, .form = CALM_INSPECT_CSV};
    ck_ok(inspect_printed(path, &query, &out));
    ck_assert(strncmp(out, "i,t\r\n1,some text of a row\r\n2,", 29) == 0);
    ck_has(out, "\r\n8192,some");
    ck_has(out, "\r\n200000,some text of a row\r\n");
    size_t lines = 0;
    for (const char *at = out; (at = strchr(at, '\n')); at++)
        lines++;
    ck_assert_uint_eq(lines, 200001);
}
END_OF_TEST

TEST(a_table_forgets_what_it_streamed)
{
    calm_table table;
    FILE *stream = tmpfile();
    ck_assert_ptr_nonnull(stream);
    table = (calm_table){0};
    calm_table_column(&table, "a", CALM_ALIGN_LEFT);
    size_t first = 0;
    for (int i = 0; i < 100; i++) {
        for (int row = 0; row < 1000; row++)
            calm_table_format(&table, "row %d of a hundred thousand", row);
        if (i == 0)
            first = table.arena.used_bytes;
        ck_assert_uint_le(table.arena.used_bytes, first + 64);
        ck_ok(calm_print_csv(ctx, &table, stream));
        ck_assert_uint_eq(calm_table_rows(&table), 0);
    }
    ck_assert_int_eq(ftell(stream), 3 + 100 * (10 * 29L + 90 * 30 + 900 * 31));
    fclose(stream);
    calm_table_clear(&table);
}
END_OF_TEST

TEST(what_writes_or_is_wrong_is_refused)
{
    static const char *const wrong[] = {"DELETE FROM run", "INSERT INTO run DEFAULT VALUES", "DROP TABLE run",
                                        "CREATE TABLE x (a)", "UPDATE run SET status = 'failed'", "VACUUM",
                                        "PRAGMA user_version = 9", "PRAGMA journal_mode = DELETE", "ATTACH 'x' AS y",
                                        "BEGIN", "SELECT 1; DELETE FROM run", "REINDEX", "ANALYZE", "", "SELEC",
                                        "SELECT * FROM nothing", "SELECT ?1", "SELECT abs(-9223372036854775807 - 1)",
                                        "WITH x AS (SELECT 1) DELETE FROM run", "RELEASE calm", "ROLLBACK"};
    const char *path = inspect_sample(), *out;
    const char *before = sql(path, "SELECT count(*), sum(id), group_concat(status) FROM run", CALM_INSPECT_CSV);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *args[] = {wrong[i]};
        for (calm_inspect_form form = CALM_INSPECT_TEXT; form <= CALM_INSPECT_CSV; form++) {
            const calm_inspect_query query = {.what = "sql", .args = args, .n_args = 1, .form = form};
            ck_fails(inspect_printed(path, &query, &out), CALM_EARG, "calm.db: ");
        }
    }
    ck_assert_str_eq(sql(path, "SELECT count(*), sum(id), group_concat(status) FROM run", CALM_INSPECT_CSV), before);
}
END_OF_TEST

int main(void)
{
    return run_tests("inspect_section",
                     (const TTest *[]){rows_of_the_user, nothing_raw_reaches_a_terminal, csv_streams,
                                       a_table_forgets_what_it_streamed, what_writes_or_is_wrong_is_refused, NULL});
}
