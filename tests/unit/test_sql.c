/* SQL: values stored and read, errors with the file's name, user queries that may only read. */
#include <stdio.h>

#include "ptq/base/file.h"
#include "store/sql.h"
#include "tests/support/harness.h"

static calm_sql *memory(void)
{
    calm_sql *sql;
    ck_ok(calm_sql_open(ctx, ":memory:", CALM_SQL_CREATE, &sql));
    ck_ok(calm_sql_script(ctx, sql, "CREATE TABLE t (a INTEGER PRIMARY KEY, b REAL, c TEXT NOT NULL, d BLOB)"));
    return sql;
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

TEST(values_round_trip)
{
    calm_sql *sql = memory();
    calm_statement *row;
    const char *text;
    double real;
    calm_value blob = {.type = CALM_VALUE_BLOB, .text = "a\0b", .n_bytes = 3};
    ck_ok(calm_sql_run(ctx, sql, "INSERT INTO t VALUES (?1, ?2, ?3, ?4)",
                       CALM_BIND(CALM_I(INT64_MIN), CALM_R(0.1), CALM_T("\xc3\xa4'x"), blob)));
    ck_ok(calm_sql_run(ctx, sql, "INSERT INTO t VALUES (?1, ?2, ?3, ?4)",
                       CALM_BIND(CALM_ID(7), CALM_R(NAN), CALM_T(""), CALM_ID(0))));
    ck_ok(calm_sql_first(ctx, sql, "SELECT a, b, c, d FROM t ORDER BY a", CALM_NONE, &row));
    ck_assert(calm_sql_next(ctx, sql, row));
    ck_assert(calm_sql_int(row, 0) == INT64_MIN);
    ck_ok(CALM_SQL_READ(ctx, row, 1, CALM_TO(&real), CALM_TO(&text)));
    ck_assert(real == 0.1);
    ck_ok(calm_sql_text(ctx, row, 2, &text));
    ck_assert_str_eq(text, "\xc3\xa4'x");
    calm_value value = calm_sql_value(row, 3);
    ck_assert(value.type == CALM_VALUE_BLOB && value.n_bytes == 3 && memcmp(value.text, "a\0b", 3) == 0);
    ck_assert(calm_sql_next(ctx, sql, row));
    ck_ok(CALM_SQL_READ(ctx, row, 1, CALM_TO(&real)));
    ck_assert(isnan(real));
    ck_assert(calm_sql_value(row, 3).type == CALM_VALUE_NULL);
    ck_assert(!calm_sql_next(ctx, sql, row));
    calm_sql_end(row);
    ck_ok(ctx->status);
    calm_sql_close(sql);
}
END_OF_TEST

TEST(constraints_and_wrong_sql_are_argument_errors)
{
    calm_sql *sql = memory();
    ck_fails(calm_sql_run(ctx, sql, "INSERT INTO t VALUES (1, 2, NULL, NULL)", CALM_NONE), CALM_EARG, "t.c");
    ck_fails(calm_sql_run(ctx, sql, "SELECT nothing FROM t", CALM_NONE), CALM_EARG, ":memory:");
    ck_fails(calm_sql_run(ctx, sql, "SELECT ?1", CALM_NONE), CALM_EARG, "takes 1");
    calm_sql_close(sql);
}
END_OF_TEST

TEST(full_database_is_enospc)
{
    calm_sql *sql = memory();
    ck_ok(calm_sql_script(ctx, sql, "PRAGMA max_page_count = 8"));
    calm_status status = CALM_OK;
    for (int i = 0; i < 100 && status == CALM_OK; i++)
        status = calm_sql_run(ctx, sql, "INSERT INTO t (c) VALUES (hex(zeroblob(1000)))", CALM_NONE);
    ck_fails(status, CALM_ENOSPC, "full");
    calm_sql_close(sql);
}
END_OF_TEST

TEST(missing_and_foreign_files)
{
    calm_sql *sql;
    const char *path = test_format("%s/x.db", test_directory());
    ck_fails(calm_sql_open(ctx, path, CALM_SQL_READ, &sql), CALM_ENOTFOUND, path);
    ck_fails(calm_sql_open(ctx, path, CALM_SQL_WRITE, &sql), CALM_ENOTFOUND, path);
    ck_assert_ptr_null(sql);
    write_text(path, "This is a text of more than a hundred bytes, which is what SQLite needs to see before it says"
                     " that a file is not a database at all.\n");
    ck_fails(calm_sql_open(ctx, path, CALM_SQL_READ, &sql), CALM_EFORMAT, path);
    ck_fails(calm_sql_open(ctx, path, CALM_SQL_WRITE, &sql), CALM_EFORMAT, path);
}
END_OF_TEST

TEST(statements_outnumber_the_cache)
{
    calm_sql *sql = memory();
    int64_t n;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 200; i++) {
            ck_ok(calm_sql_number(ctx, sql, test_format("SELECT %d", i), CALM_NONE, &n));
            ck_assert_int_eq(n, i);
        }
    }
    calm_sql_close(sql);
}
END_OF_TEST

TEST(undo_of_nested_savepoints)
{
    calm_sql *sql = memory();
    int64_t n;
    ck_ok(calm_sql_run(ctx, sql, "SAVEPOINT calm", CALM_NONE));
    ck_ok(calm_sql_run(ctx, sql, "INSERT INTO t (c) VALUES ('outer')", CALM_NONE));
    ck_ok(calm_sql_run(ctx, sql, "SAVEPOINT calm", CALM_NONE));
    ck_ok(calm_sql_run(ctx, sql, "INSERT INTO t (c) VALUES ('inner')", CALM_NONE));
    calm_sql_undo(sql);
    ck_ok(calm_sql_run(ctx, sql, "RELEASE calm", CALM_NONE));    /* the outer one, which is still open */
    ck_fails(calm_sql_run(ctx, sql, "RELEASE calm", CALM_NONE), CALM_EARG, "no such savepoint");
    calm_sql_undo(sql);    /* nothing is open */
    ck_ok(calm_sql_number(ctx, sql, "SELECT count(*) FROM t", CALM_NONE, &n));
    ck_assert_int_eq(n, 1);
    calm_sql_close(sql);
}
END_OF_TEST

/* Counts calls: headings once, then rows; fails at row `stop` if that is > 0. */
typedef struct counter {
    int headings, rows, stop;
    char first_name[16];
} counter;

static calm_status count_rows(calm_ctx *c, void *user, size_t n, const char *const *names, const calm_value *values)
{
    counter *counted = user;
    ck_assert_uint_gt(n, 0);
    if (!values) {
        counted->headings++;
        snprintf(counted->first_name, sizeof counted->first_name, "%s", names[0]);
        return CALM_OK;
    }
    if (++counted->rows == counted->stop)
        return calm_fail(c, CALM_EINTERRUPTED, "enough");
    return CALM_OK;
}

TEST(query_delivers_headings_and_rows)
{
    calm_sql *sql = memory();
    counter none = {0}, three = {0}, stopped = {.stop = 2};
    ck_ok(calm_sql_query(ctx, sql, "SELECT c AS words FROM t;  -- nothing yet", CALM_NONE, count_rows, &none));
    ck_assert_int_eq(none.headings, 1);
    ck_assert_int_eq(none.rows, 0);
    ck_assert_str_eq(none.first_name, "words");
    ck_ok(calm_sql_script(ctx, sql, "INSERT INTO t (c) VALUES ('a'), ('b'), ('c'), ('d')"));
    ck_ok(calm_sql_query(ctx, sql, "WITH x AS (SELECT * FROM t) SELECT * FROM x WHERE c < ?1", CALM_BIND(CALM_T("d")),
                         count_rows, &three));
    ck_assert_int_eq(three.rows, 3);
    ck_fails(calm_sql_query(ctx, sql, "SELECT * FROM t", CALM_NONE, count_rows, &stopped), CALM_EINTERRUPTED, "enough");
    counter described = {0};
    ck_ok(calm_sql_query(ctx, sql, "SELECT name FROM pragma_table_info('t')", CALM_NONE, count_rows, &described));
    ck_assert_int_eq(described.rows, 4);
    ck_ok(calm_sql_query(ctx, sql, "SELECT value FROM json_each('[1, 2]')", CALM_NONE, count_rows, &described));
    ck_ok(calm_sql_query(ctx, sql, "EXPLAIN QUERY PLAN SELECT * FROM t", CALM_NONE, count_rows, &described));
    ck_ok(calm_sql_query(ctx, sql, "PRAGMA user_version", CALM_NONE, count_rows, &described));
    calm_sql_close(sql);
}
END_OF_TEST

TEST(query_may_only_read)
{
    static const char *const refused[] = {
        "DELETE FROM t", "INSERT INTO t (c) VALUES ('x')", "UPDATE t SET c = 'x'", "DROP TABLE t",
        "CREATE TABLE u (a)", "CREATE TEMP TABLE u (a)", "ATTACH 'x.db' AS x", "BEGIN", "SAVEPOINT a", "VACUUM",
        "PRAGMA user_version = 9", "PRAGMA journal_mode = DELETE", "PRAGMA writable_schema = 1", "REINDEX", "ANALYZE",
        "WITH x AS (SELECT 1) INSERT INTO t (c) SELECT * FROM x",
        "SELECT * FROM pragma_user_version(9)", "DETACH x",
    };
    calm_sql *sql = memory();
    counter counted = {0};
    int64_t n;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        calm_status status = calm_sql_query(ctx, sql, refused[i], CALM_NONE, count_rows, &counted);
        ck_assert_msg(status == CALM_EARG, "%s: %s", refused[i], calm_status_name(status));
        calm_ctx_clear_failure(ctx);
    }
    ck_fails(calm_sql_query(ctx, sql, "SELECT 1; DROP TABLE t", CALM_NONE, count_rows, &counted), CALM_EARG, "DROP");
    ck_fails(calm_sql_query(ctx, sql, "SELECT 1; nonsense", CALM_NONE, count_rows, &counted), CALM_EARG, "nonsense");
    ck_fails(calm_sql_query(ctx, sql, "  -- only words", CALM_NONE, count_rows, &counted), CALM_EARG, "empty");
    ck_fails(calm_sql_query(ctx, sql, "SELECT * FROM missing", CALM_NONE, count_rows, &counted), CALM_EARG, "missing");
    ck_assert_int_eq(counted.rows, 0);
    ck_ok(calm_sql_number(ctx, sql, "PRAGMA user_version", CALM_NONE, &n));
    ck_assert_int_eq(n, 0);
    /* The store's own statements are not refused afterwards. */
    ck_ok(calm_sql_run(ctx, sql, "INSERT INTO t (c) VALUES ('x')", CALM_NONE));
    calm_sql_close(sql);
}
END_OF_TEST

/* Only files of this database are removed, and the database only on request. */
TEST(removing_takes_what_sqlite_wrote)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-journal", "-other"};
    for (int itself = 0; itself < 2; itself++) {
        const char *path = test_format("%s/removed.db", test_directory());
        for (size_t i = 0; i < 5; i++)
            write_text(test_format("%s%s", path, suffixes[i]), "x");
        calm_sql_remove(ctx, path, itself);
        calm_sql_remove(ctx, path, itself);    /* nothing to remove is no failure */
        ck_assert_int_eq(ctx->status, CALM_OK);
        ck_assert_int_eq(calm_path_exists(path), !itself);
        for (size_t i = 1; i < 5; i++)
            ck_assert_int_eq(calm_path_exists(test_format("%s%s", path, suffixes[i])), i == 4);
    }
}
END_OF_TEST

/* SQLite needs -shm and -wal to read; a reader leaves the folder as it was. */
TEST(reading_leaves_no_files)
{
    const char *path = test_format("%s/read.db", test_directory());
    const char *wal = test_format("%s-wal", path), *shm = test_format("%s-shm", path);
    calm_sql *writer, *reader;
    int64_t n;
    ck_ok(calm_sql_open(ctx, path, CALM_SQL_CREATE, &writer));
    ck_ok(calm_sql_script(ctx, writer, "CREATE TABLE t (a)"));
    calm_sql_close(writer);
    ck_ok(calm_sql_open(ctx, path, CALM_SQL_READ, &reader));
    ck_ok(calm_sql_number(ctx, reader, "SELECT count(*) FROM t", CALM_NONE, &n));
    ck_assert(calm_sql_run(ctx, reader, "INSERT INTO t VALUES (1)", CALM_NONE) != CALM_OK);
    calm_ctx_clear_failure(ctx);
    calm_sql_close(reader);
    ck_assert(!calm_path_exists(wal) && !calm_path_exists(shm));
    /* What a writer has not yet moved into the database stays in its file. */
    ck_ok(calm_sql_open(ctx, path, CALM_SQL_WRITE, &writer));
    ck_ok(calm_sql_run(ctx, writer, "INSERT INTO t VALUES (1)", CALM_NONE));
    ck_ok(calm_sql_open(ctx, path, CALM_SQL_READ, &reader));
    ck_ok(calm_sql_number(ctx, reader, "SELECT count(*) FROM t", CALM_NONE, &n));
    ck_assert_int_eq(n, 1);
    calm_sql_close(reader);
    ck_assert(calm_path_exists(wal) && calm_path_exists(shm));
    calm_sql_close(writer);
    ck_assert(!calm_path_exists(wal) && !calm_path_exists(shm));
}
END_OF_TEST

int main(void)
{
    return run_tests("sql", (const TTest *[]){values_round_trip, constraints_and_wrong_sql_are_argument_errors,
                                              full_database_is_enospc, missing_and_foreign_files,
                                              statements_outnumber_the_cache, undo_of_nested_savepoints,
                                              query_delivers_headings_and_rows, query_may_only_read,
                                              removing_takes_what_sqlite_wrote, reading_leaves_no_files, NULL});
}
