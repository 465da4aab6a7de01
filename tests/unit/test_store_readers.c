/* Readers while a run writes: in another process through the store, with the sqlite3 program, and in the middle of a
 * query.  None sees an error or a part of a transaction, and the writer never waits: its busy timeout is 0. */
#include <poll.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/store_impl.h"
#include "tests/support/harness.h"
#include "tests/support/store_sample.h"

#define CHANGES 20       /* states that a reader sees before the writer ends */
#define CANDIDATES 4    /* of a transaction */
#define SCORES 5

static calm_store *open_writer(const char *path)
{
    calm_store *store = sample_open(path, CALM_STORE_WRITE);
    ck_ok(calm_sql_script(ctx, store->sql, "PRAGMA busy_timeout = 0"));
    return store;
}

/* Stores candidates with their scores and the run's rows for them, and the job's choice among them. */
static calm_status put_transaction(calm_store *store, const sample *s, int number)
{
    char keys[CANDIDATES][20];
    CALM_TRY(calm_store_begin(ctx, store));
    for (int i = 0; i < CANDIDATES; i++) {
        calm_store_score scores[SCORES] = {{NULL, "cka", 1e-5 * number}, {NULL, "cka_token", 1e-5 * i},
                                           {NULL, "rel_mse", 0.1},      {"sublayer", "cka", 0.2},
                                           {"block", "cka", 0.3}};
        int64_t id;
        snprintf(keys[i], sizeof keys[i], "k%d.%d", number, i);
        const calm_store_candidate candidate = {.key = keys[i], .job_id = number % 2 ? s->qkv : s->down,
                                                .calibration_id = s->calibration, .algorithm = "rtn",
                                                .chain = "absmax@1()",
                                                .scheme = "w4a16_g128", .blob = keys[i], .blob_bytes = 9,
                                                .scores = scores, .n_scores = SCORES};
        CALM_TRY(calm_store_candidate_put(ctx, store, &candidate, &id));
        CALM_TRY(calm_store_run_candidate(ctx, store, s->run, id));
        CALM_TRY(calm_store_choice_put(ctx, store, &(calm_store_choice){s->run, candidate.job_id, id, "unit", "least",
                                                                        NULL, false}));
    }
    return calm_store_commit(ctx, store);
}

/* Starts a child that writes transactions until `done` is closed, and exits with a status that says whether all went
 * well; it writes to `ready` once it has opened the store. */
static pid_t start_writer(const char *path, int *ready, int *done)
{
    int to_parent[2], to_child[2];
    ck_assert(pipe(to_parent) == 0 && pipe(to_child) == 0);
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        close(to_child[1]);
        calm_store *store = open_writer(path);
        const sample s = sample_fill(store);
        if (write(to_parent[1], "r", 1) != 1)
            _exit(1);
        struct pollfd end = {to_child[0], POLLIN, 0};
        for (int i = 0; ctx->status == CALM_OK && poll(&end, 1, 0) == 0; i++)
            put_transaction(store, &s, i);
        if (ctx->status != CALM_OK)
            fprintf(stderr, "writer: %s\n", ctx->message);
        calm_store_close(store);
        _exit(ctx->status != CALM_OK);
    }
    close(to_parent[1]);
    close(to_child[0]);
    *ready = to_parent[0], *done = to_child[1];
    return pid;
}

/* Counts the candidates; -1: a part of a transaction is there. */
static const char count_sql[] =
    "SELECT CASE WHEN count(*) % 4 = 0 AND coalesce(sum(scores), 0) = 5 * count(*) AND count(*) = "
    "coalesce(sum(noted), 0) THEN count(*) ELSE -1 END FROM (SELECT (SELECT count(*) FROM score WHERE candidate_id = "
    "c.id) AS scores, (SELECT count(*) FROM run_candidate WHERE candidate_id = c.id) AS noted FROM candidate c)";

static const char *made_store(void)
{
    const char *path = sample_path();
    calm_store *store = sample_open(path, CALM_STORE_WRITE);
    sample_fill(store);
    calm_store_close(store);
    return path;
}

/* Reads by `look` while the writer writes; `along`: also while it opens and closes the store. */
static void read_along(const char *path, int64_t (*look)(const char *path), bool along)
{
    int status, ready, done;
    char byte;
    int64_t seen = 0, different = 0;
    const pid_t pid = start_writer(path, &ready, &done);
    if (!along)
        ck_assert_int_eq(read(ready, &byte, 1), 1);
    while (different < CHANGES) {
        ck_assert_msg(waitpid(pid, &status, WNOHANG) == 0, "the writer has ended");
        const int64_t now = look(path);
        ck_assert_msg(now >= seen, "%lld candidates after %lld", (long long)now, (long long)seen);
        different += now != seen;
        seen = now;
    }
    close(done);
    for (int i = 0; along && i < 50; i++)
        ck_assert_int_ge(look(path), seen);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    close(ready);
}

static calm_store *reader;

static int64_t look_through_store(const char *path)
{
    (void)path;
    const int64_t n = sample_number(reader, count_sql);
    ck_assert_int_ge(n, 0);
    ck_assert_int_le(sample_number(reader, "SELECT count(*) FROM v_choices WHERE run = 1"), 2);
    ck_assert_int_ge(sample_number(reader, "SELECT candidates FROM v_runs WHERE run = 1"), n);
    return n;
}

TEST(another_process)
{
    const char *path = made_store();
    reader = sample_open(path, CALM_STORE_READ);
    read_along(path, look_through_store, false);
    calm_store_close(reader);
}
END_OF_TEST

/* Opens the store anew each time, as `calm inspect` does. */
static int64_t look_anew(const char *path)
{
    reader = sample_open(path, CALM_STORE_READ);
    const int64_t n = look_through_store(path);
    calm_store_close(reader);
    return n;
}

TEST(opened_anew)
{
    read_along(made_store(), look_anew, true);
}
END_OF_TEST

static int64_t look_with_program(const char *path)
{
    char line[200] = "";
    FILE *out = popen(test_format("sqlite3 '%s' \"%s\" 'SELECT count(*) FROM v_choices WHERE run = 1' 2>&1", path,
                                  count_sql), "r");
    ck_assert_ptr_nonnull(out);
    ck_assert_ptr_nonnull(fgets(line, sizeof line, out));
    char *end;
    const long long n = strtoll(line, &end, 10);
    ck_assert_msg(end != line && n >= 0, "sqlite3 says: %s", line);
    ck_assert_ptr_nonnull(fgets(line, sizeof line, out));
    ck_assert_msg(strchr("012", line[0]), "sqlite3 says: %s", line);
    ck_assert_int_eq(pclose(out), 0);
    return n;
}

/* Without a timeout: SQLite locks readers out only while a writer opens or closes the store, for milliseconds. */
TEST(sqlite3_program)
{
    if (system("command -v sqlite3 >/dev/null 2>&1") != 0) {
        printf("SKIP: no sqlite3 program (apt-get install sqlite3)\n");
        return;
    }
    read_along(made_store(), look_with_program, false);
}
END_OF_TEST

/* ---- in the middle of a query ---- */

typedef struct slow_reader {
    calm_store *writer;
    sample s;
    int rows;
} slow_reader;

static calm_status write_meanwhile(calm_ctx *c, void *user, size_t n, const char *const *names,
                                   const calm_value *values)
{
    slow_reader *it = user;
    (void)c, (void)n, (void)names;
    if (values && it->rows++ < 50)
        ck_ok(put_transaction(it->writer, &it->s, 1000 + it->rows));
    return CALM_OK;
}

/* The reader sees what was there when it began, however much is written and checkpointed. */
TEST(a_long_query)
{
    const char *path = sample_path();
    slow_reader it = {.writer = open_writer(path)};
    it.s = sample_fill(it.writer);
    for (int i = 0; i < 30; i++)
        ck_ok(put_transaction(it.writer, &it.s, i));
    reader = sample_open(path, CALM_STORE_READ);
    ck_ok(calm_store_query(ctx, reader, "SELECT id FROM candidate", NULL, 0, write_meanwhile, &it));
    ck_assert_int_eq(it.rows, 30 * CANDIDATES);
    ck_ok(calm_sql_script(ctx, it.writer->sql, "PRAGMA wal_checkpoint(PASSIVE)"));
    ck_assert_int_eq(look_through_store(path), 80 * CANDIDATES);
    calm_store_close(reader);
    calm_store_close(it.writer);
}
END_OF_TEST

int main(void)
{
    return run_tests("store_readers",
                     (const TTest *[]){another_process, opened_anew, sqlite3_program, a_long_query, NULL});
}
