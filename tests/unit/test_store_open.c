/* Opening a store: refusals, what an interrupted creation leaves, readers and writers in two processes. */
#include "store/store.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ptq/base/file.h"
#include "store/sql.h"
#include "tests/support/harness.h"
#include "tests/support/store_sample.h"

/* ---- opening ---- */

static void write_bytes(const char *path, const void *bytes, size_t n_bytes)
{
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, n_bytes, file), n_bytes);
    ck_assert_int_eq(fclose(file), 0);
}

/* Checks that the store is refused in both modes with these words, and the folder is unchanged: no lock, no blobs,
 * same bytes. */
static void refused(const char *path, calm_status expected, const char *words)
{
    calm_store *store;
    char *before, *after;
    size_t n_before, n_after;
    ck_ok(calm_read_file(ctx, path, 1 << 24, &before, &n_before));
    ck_fails(calm_store_open(ctx, path, NULL, &store), expected, words);
    ck_assert_ptr_null(store);
    ck_fails(calm_store_open(ctx, path, &sample_writing, &store), expected, words);
    ck_assert_ptr_null(store);
    ck_ok(calm_read_file(ctx, path, 1 << 24, &after, &n_after));
    ck_assert(n_before == n_after && memcmp(before, after, n_before) == 0);
    ck_assert(!calm_path_exists(test_format("%s.lock", path)));
    ck_assert(!calm_path_exists(test_format("%s.blobs", path)));
}

/* Makes a database at `path` by this script. */
static void make_database(const char *path, const char *script)
{
    calm_sql *sql;
    ck_ok(calm_sql_open(ctx, path, CALM_SQL_CREATE, &sql));
    ck_ok(calm_sql_script(ctx, sql, script));
    calm_sql_close(sql);
}

TEST(foreign_and_newer_files_are_refused)
{
    const char *folder = test_directory(), *path = test_format("%s/text", folder);
    char words[4000];
    memset(words, 'x', sizeof words);
    write_bytes(path, words, sizeof words);
    refused(path, CALM_EFORMAT, path);
    write_bytes(path, words, 30);
    refused(path, CALM_EFORMAT, path);
    path = test_format("%s/foreign.db", folder);
    make_database(path, "CREATE TABLE bookmarks (url TEXT)");
    refused(path, CALM_EFORMAT, "another program");
    path = test_format("%s/newer.db", folder);
    make_database(path, calm_store_schema());
    make_database(path, "PRAGMA user_version = 10; CREATE TABLE novelty (a)");
    refused(path, CALM_EUNSUPPORTED, "store version 10, this program knows versions up to 9");
    /* calm's number with another program's tables */
    for (int version = 3; version <= 4; version++) {
        path = test_format("%s/number%d.db", folder, version);
        make_database(path, test_format("PRAGMA application_id = 0x63616c6d; PRAGMA user_version = %d;"
                                        "CREATE TABLE bookmarks (url TEXT)", version));
        refused(path, CALM_EFORMAT, "damaged store: \"model\" is missing or was changed");
        ck_assert(!calm_path_exists(test_format("%s.v3.bak", path)));
    }
    path = test_format("%s/altered.db", folder);
    make_database(path, calm_store_schema());
    make_database(path, "DROP VIEW v_choices; CREATE VIEW v_choices AS SELECT 1 AS run");
    refused(path, CALM_EFORMAT, "\"v_choices\" is missing or was changed");
}
END_OF_TEST

TEST(truncated_store_is_refused)
{
    const char *path = sample_path();
    calm_store *store = sample_open(path, CALM_STORE_WRITE);
    sample_fill(store);
    calm_store_close(store);
    char *bytes;
    size_t n_bytes;
    ck_ok(calm_read_file(ctx, path, 1 << 24, &bytes, &n_bytes));
    const char *folder = test_directory();
    size_t lengths[] = {1, 50, 99, 100, 4096, n_bytes / 2, n_bytes - 1};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        const char *cut = test_format("%s/%zu.db", folder, lengths[i]);
        write_bytes(cut, bytes, lengths[i]);
        refused(cut, CALM_EFORMAT, cut);
    }
}
END_OF_TEST

TEST(empty_files_become_stores)
{
    const char *path = sample_path();
    calm_store *store;
    ck_fails(calm_store_open(ctx, path, NULL, &store), CALM_ENOTFOUND, path);
    write_bytes(path, "", 0);
    ck_fails(calm_store_open(ctx, path, NULL, &store), CALM_ENOTFOUND, path);
    /* Left over from a deleted store, and from one whose creation was interrupted. */
    write_bytes(test_format("%s-wal", path), "stale", 5);
    write_bytes(test_format("%s.new", path), "stale", 5);
    store = sample_open(path, CALM_STORE_WRITE);
    sample_fill(store);
    calm_store_close(store);
    ck_assert(!calm_path_exists(test_format("%s.new", path)));
    store = sample_open(path, CALM_STORE_READ);
    ck_assert_int_eq(sample_number(store, "SELECT count(*) FROM job"), 2);
    calm_store_close(store);
    ck_fails(calm_store_open(ctx, test_format("%s/none/calm.db", test_directory()), &sample_writing, &store),
             CALM_ENOTFOUND, "none/calm.db");
}
END_OF_TEST

TEST(reading_writes_nothing)
{
    const char *path = sample_path();
    calm_store *store = sample_open(path, CALM_STORE_WRITE);
    sample_fill(store);
    calm_store_close(store);
    ck_assert_int_eq(unlink(test_format("%s.lock", path)), 0);
    store = sample_open(path, CALM_STORE_READ);
    int64_t id;
    ck_fails(calm_store_model_id(ctx, store, &sample_model, &id), CALM_EIO, "readonly");
    ck_assert_str_eq(sample_text(store, "SELECT status FROM run"), "running");
    calm_value row[2];
    ck_fails(calm_store_query_one(ctx, store, "SELECT 1", NULL, 0, row, 2), CALM_EARG, "1 columns");
    ck_fails(calm_store_query_one(ctx, store, "SELECT 1 WHERE 0", NULL, 0, row, 1), CALM_ENOTFOUND, path);
    ck_fails(calm_store_query_one(ctx, store, "DELETE FROM run RETURNING id", NULL, 0, row, 1), CALM_EARG, "reading");
    calm_store_close(store);
    ck_assert(!calm_path_exists(test_format("%s.lock", path)));
}
END_OF_TEST

/* ---- two processes ---- */

static int let_go = -1;    /* closed: the holder writes and exits */

/* A waiting process logs it, and then the holder can release the store. */
static void keep_line(void *user, calm_log_level level, const char *line)
{
    (void)level;
    snprintf(user, CALM_MESSAGE_MAX, "%s", line);
    close(let_go);
}

/* Starts a child that holds the store, reports it through a pipe, and writes and exits when told to. */
static pid_t start_holder(const char *path, int *ready)
{
    int ends[2], go[2];
    ck_assert(pipe(ends) == 0 && pipe(go) == 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        calm_store *store;
        calm_store_how how = {.mode = CALM_STORE_WRITE, .command = "calm quantize --model other"};
        char byte;
        close(go[1]);
        if (calm_store_open(ctx, path, &how, &store) != CALM_OK || write(ends[1], "x", 1) != 1 ||
            read(go[0], &byte, 1) != 0)
            _exit(1);
        int64_t id;
        calm_status status = calm_store_model_id(ctx, store, &sample_model, &id);
        calm_store_close(store);
        _exit(status != CALM_OK);
    }
    close(ends[1]);
    close(go[0]);
    *ready = ends[0];
    let_go = go[1];
    return pid;
}

TEST(a_second_writer_waits_or_is_told_who_writes)
{
    const char *path = sample_path();
    char line[CALM_MESSAGE_MAX] = "", byte;
    int ready, status;
    calm_store *store, *reader;
    calm_store_how how = sample_writing;
    pid_t pid = start_holder(path, &ready);
    ck_assert_int_eq(read(ready, &byte, 1), 1);
    ck_fails(calm_store_open(ctx, path, &how, &store), CALM_EBUSY,
             test_format("process %ld (calm quantize --model other)", (long)pid));
    ck_ok(calm_store_open(ctx, path, NULL, &reader));
    ck_assert_int_eq(sample_number(reader, "SELECT count(*) FROM model"), 0);
    ctx->log = keep_line, ctx->log_user = line;
    how.wait_seconds = -1;
    ck_ok(calm_store_open(ctx, path, &how, &store));
    ck_assert_msg(strstr(line, "waiting for process"), "%s", line);
    ck_assert_int_eq(sample_number(store, "SELECT count(*) FROM model"), 1);
    ck_assert_int_eq(sample_number(reader, "SELECT count(*) FROM model"), 1);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    /* Also two in one process. */
    calm_store *second;
    how.wait_seconds = 0;
    ck_fails(calm_store_open(ctx, path, &how, &second), CALM_EBUSY, "calm test");
    sample s = sample_fill(store);
    ck_assert_int_gt(s.run, 0);
    ck_assert_int_eq(sample_number(reader, "SELECT count(*) FROM run"), 1);
    calm_store_close(reader);
    calm_store_close(store);
    close(ready);
}
END_OF_TEST

static void *interrupt_stores(void *unused)
{
    calm_store_interrupted();
    return unused;
}

/* Another thread marks the runs of a process that a signal ends, also while the store is in use; a store that is only
 * read is left alone. */
TEST(the_end_of_the_process_marks_its_runs)
{
    const char *path = sample_path();
    calm_store *store = sample_open(path, CALM_STORE_WRITE), *reader = sample_open(path, CALM_STORE_READ);
    pthread_t thread;
    sample_fill(store);
    ck_assert_str_eq(sample_text(reader, "SELECT status FROM run"), "running");
    ck_assert_int_eq(pthread_create(&thread, NULL, interrupt_stores, NULL), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_str_eq(sample_text(reader, "SELECT status FROM run"), "interrupted");
    /* A transaction of the writer that does not end: the thread gives up. */
    const calm_store_run run = {.key = "r1", .model_id = 1, .calibration_id = 1};
    int64_t id;
    ck_ok(calm_store_begin(ctx, store));
    ck_ok(calm_store_run_begin(ctx, store, &run, &id, NULL));
    interrupt_stores(NULL);
    ck_ok(calm_store_commit(ctx, store));
    calm_store_close(store);
    interrupt_stores(NULL);    /* it writes no store any more */
    ck_assert_str_eq(sample_text(reader, "SELECT status FROM run"), "running");
    calm_store_close(reader);
}
END_OF_TEST

TEST(a_wait_for_a_writer_can_be_interrupted)
{
    atomic_bool stop = true;
    const char *path = sample_path();
    calm_store *second, *store = sample_open(path, CALM_STORE_WRITE);
    calm_store_how how = sample_writing;
    how.wait_seconds = 0.2;
    ctx->stop = &stop;
    ck_fails(calm_store_open(ctx, path, &how, &second), CALM_EINTERRUPTED, "interrupted");
    ctx->stop = NULL;
    calm_store_close(store);
}
END_OF_TEST

/* Two links to one store are one store: one lock, one folder of blobs. */
TEST(a_link_is_the_store_it_leads_to)
{
    const char *path = sample_path(), *link = test_format("%s.link", path);
    calm_store_how how = sample_writing;
    calm_store *second;
    ck_assert_int_eq(symlink(calm_path_name(path), link), 0);
    calm_store *store = sample_open(link, CALM_STORE_WRITE);    /* which also creates it */
    ck_assert(!calm_path_exists(test_format("%s.lock", link)));
    ck_assert_str_eq(calm_store_blobs(store), test_format("%s.blobs", path));
    ck_fails(calm_store_open(ctx, path, &how, &second), CALM_EBUSY, "calm test");
    calm_store_close(store);
    calm_store_close(sample_open(path, CALM_STORE_READ));
}
END_OF_TEST

/* SQLite would keep ":memory:" in memory, and read options in "file:a?mode=ro". */
TEST(any_name_is_a_file)
{
    static const char *const names[] = {":memory:", "file:a?mode=ro", "a%20b?c#d"};
    calm_store *store;
    ck_assert_int_eq(chdir(test_directory()), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        store = sample_open(names[i], CALM_STORE_WRITE);
        sample_fill(store);
        calm_store_close(store);
        store = sample_open(names[i], CALM_STORE_READ);
        ck_assert_int_eq(sample_number(store, "SELECT count(*) FROM run"), 1);
        calm_store_close(store);
        ck_assert(calm_is_file(names[i]));
    }
    ck_assert_int_eq(mkfifo("pipe", 0600), 0);
    ck_fails(calm_store_open(ctx, "pipe", &sample_writing, &store), CALM_EARG, "pipe: a device or a pipe");
    ck_fails(calm_store_open(ctx, "pipe", NULL, &store), CALM_EARG, "pipe: a device or a pipe");
    ck_assert(!calm_path_exists("pipe.lock"));
}
END_OF_TEST

TEST(a_killed_writer_holds_nothing)
{
    const char *path = sample_path();
    char byte;
    int ready;
    pid_t pid = start_holder(path, &ready);
    ck_assert_int_eq(read(ready, &byte, 1), 1);
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    calm_store *store = sample_open(path, CALM_STORE_WRITE);
    sample_fill(store);
    calm_store_close(store);
    close(let_go);
    close(ready);
}
END_OF_TEST

/* Version 8 has times of stages without a forecast (other versions: test_store_migration.c). */
TEST(version_8_keeps_its_times)
{
    const char *path = sample_path();
    make_database(path, calm_store_schema());
    make_database(path, "INSERT INTO model (id, digest, name, architecture) VALUES (1, 'd', 'm', 'a');"
                        "INSERT INTO run (id, key, model_id, status) VALUES (1, 'r', 1, 'finished');"
                        "ALTER TABLE run_stage DROP COLUMN forecast_seconds;"
                        "INSERT INTO run_stage VALUES (1, 0, 'read', 1.5, 3), (1, 1, 'guard', 2, 4);"
                        "PRAGMA user_version = 8; PRAGMA wal_checkpoint(TRUNCATE)");
    calm_store *store = sample_open(path, CALM_STORE_WRITE);
    ck_assert_int_eq(sample_number(store, "SELECT count(*) FROM run_stage WHERE forecast_seconds IS NULL"), 2);
    ck_assert_int_eq(sample_number(store, "SELECT count(*) FROM run_stage WHERE"
                                            " 2 * seconds + cpu_seconds = 6 AND stage = 'read'"), 1);
    ck_ok(calm_store_stage_forecast(ctx, store, 1, 1, 8));
    ck_assert_int_eq(sample_number(store, "SELECT count(*) FROM run_stage WHERE"
                                            " forecast_seconds = 8 AND stage = 'guard'"), 1);
    ck_assert_int_eq(sample_number(store, "SELECT count(forecast_seconds) FROM run_stage"), 1);
    ck_fails(calm_store_stage_forecast(ctx, store, 1, 2, 8), CALM_EARG, "run 1 has no stage 2");
    calm_store_close(store);
    make_database(path, "ALTER TABLE run_stage DROP COLUMN cpu_seconds; PRAGMA user_version = 8;"
                        "PRAGMA wal_checkpoint(TRUNCATE)");
    ck_fails(calm_store_open(ctx, path, &sample_writing, &store), CALM_EFORMAT,
             "\"run_stage\" is missing or was changed");
}
END_OF_TEST

int main(void)
{
    return run_tests("store_open", (const TTest *[]){
        foreign_and_newer_files_are_refused, truncated_store_is_refused, empty_files_become_stores,
        reading_writes_nothing, a_second_writer_waits_or_is_told_who_writes, the_end_of_the_process_marks_its_runs,
        a_wait_for_a_writer_can_be_interrupted,
        a_link_is_the_store_it_leads_to, any_name_is_a_file, a_killed_writer_holds_nothing, version_8_keeps_its_times,
        NULL});
}
