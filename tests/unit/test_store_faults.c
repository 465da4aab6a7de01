/* The store when the machine fails: killed at every system call that writes, and every such call refused in turn
 * (tests/support/faults.h). */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ptq/base/file.h"
#include "store/blob.h"
#include "store/sql.h"
#include "store/store.h"
#include "tests/support/faults.h"
#include "tests/support/harness.h"

#define N_CANDIDATES 6
#define BLOB_BYTES 20000
#ifdef CALM_SANITIZED
#define KILL_POINTS 40
#define FAIL_POINTS 20
#else
#define KILL_POINTS 200
#define FAIL_POINTS 60
#endif

/* ---- the scenario: what a run does with the store ---- */

static const calm_store_how writing = {.mode = CALM_STORE_WRITE, .command = "calm test"};

static void blob_of(int i, char bytes[BLOB_BYTES])
{
    for (size_t k = 0; k < BLOB_BYTES; k++)
        bytes[k] = (char)(k * (size_t)(i + 3) >> 4);
}

static calm_status put_candidate(calm_store *store, int64_t job, int64_t calibration, int64_t run, int i)
{
    static char bytes[BLOB_BYTES];
    char key[16], digest[CALM_SHA256_HEX];
    calm_store_candidate c;
    int64_t id;
    snprintf(key, sizeof key, "k%d", i);
    CALM_TRY(calm_store_candidate_find(ctx, store, key, &c, &id));
    if (!id) {
        blob_of(i, bytes);
        CALM_TRY(calm_blob_put(ctx, calm_store_blobs(store), &(calm_blob_piece){bytes, BLOB_BYTES}, 1, digest));
        calm_store_score scores[] = {{NULL, "cka", 1e-5 * i}, {NULL, "cka_token", 2e-5 * i}, {NULL, "rel_mse", 0.1}};
        c = (calm_store_candidate){.key = key, .job_id = job, .calibration_id = calibration, .algorithm = "rtn",
                                   .chain = "absmax@1()+nearest@1()", .scheme = "w4a16_g128", .blob = digest,
                                   .blob_bytes = BLOB_BYTES, .scores = scores, .n_scores = 3};
        CALM_TRY(calm_store_candidate_put(ctx, store, &c, &id));
    }
    return calm_store_run_candidate(ctx, store, run, id);
}

static calm_status put_all(calm_store *store)
{
    int64_t model, calibration, block, job, run;
    bool finished = false;
    calm_store_model m = {.digest = "m", .name = "qwen", .architecture = "Qwen3ForCausalLM"};
    calm_store_calibration c = {.key = "c", .text_name = "bundled"};
    CALM_TRY(calm_store_begin(ctx, store));
    CALM_TRY(calm_store_model_id(ctx, store, &m, &model));
    CALM_TRY(calm_store_calibration_id(ctx, store, &c, &calibration));
    calm_store_block b = {.model_id = model, .name = "model.layers.0", .kind = "decoder"};
    CALM_TRY(calm_store_block_id(ctx, store, &b, &block));
    calm_store_job j = {.block_id = block, .role = "o", .name = "o", .sublayer = "attention", .linears = "o"};
    CALM_TRY(calm_store_job_id(ctx, store, &j, &job));
    CALM_TRY(calm_store_commit(ctx, store));
    calm_store_run r = {.key = "r", .model_id = model, .calibration_id = calibration};
    CALM_TRY(calm_store_run_begin(ctx, store, &r, &run, &finished));
    for (int i = 0; i < N_CANDIDATES; i++)
        CALM_TRY(put_candidate(store, job, calibration, run, i));
    calm_store_choice choice = {.run_id = run, .job_id = job, .candidate_id = 1, .unit = "o", .reason = "least"};
    CALM_TRY(calm_store_choice_put(ctx, store, &choice));
    return calm_store_run_end(ctx, store, run, &(calm_store_outcome){.status = "finished", .result = "hybrid"});
}

static calm_status play(const char *path)
{
    calm_store *store;
    CALM_TRY(calm_store_open(ctx, path, &writing, &store));
    put_all(store);
    calm_store_close(store);
    return ctx->status;
}

/* What a child process reports. */
typedef struct report {
    calm_status status;
    long n_calls;
    char message[CALM_MESSAGE_MAX];
} report;

/* Runs the scenario in a child with a fault; returns false if it was killed. */
static bool play_with(const char *path, fault wanted, report *out)
{
    int status;
    report *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(shared != MAP_FAILED);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        fault_plan(wanted);
        shared->status = play(path);
        shared->n_calls = fault_calls();
        memcpy(shared->message, ctx->message, CALM_MESSAGE_MAX);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    *out = *shared;
    munmap(shared, sizeof *shared);
    ck_assert_msg(WIFEXITED(status) || WTERMSIG(status) == SIGKILL, "call %ld: child ended with %d", wanted.at, status);
    return WIFEXITED(status);
}

/* ---- what must hold ---- */

/* Returns all that the scenario stores as one text, without times, attempts and a second run of the same key. */
static const char *contents(const char *path)
{
    calm_store *store;
    calm_value value;
    ck_ok(calm_store_open(ctx, path, NULL, &store));
    ck_ok(calm_store_query_one(
        ctx, store,
        "SELECT group_concat(line, char(10)) FROM (SELECT DISTINCT c.key || c.blob || a.chain || s.metric ||"
        " s.value || r.status || h.reason AS line FROM candidate c JOIN algorithm a ON"
        " a.id = c.algorithm_id JOIN score s ON s.candidate_id = c.id JOIN run_candidate rc ON"
        " rc.candidate_id = c.id JOIN run r ON r.id = rc.run_id JOIN choice h ON h.run_id = r.id"
        " ORDER BY 1)",
        NULL, 0, &value, 1));
    calm_store_close(store);
    return value.text ? value.text : "";
}

static void check_database(const char *path, long at)
{
    calm_sql *sql;
    calm_statement *row;
    const char *words = "";
    ck_ok(calm_sql_open(ctx, path, CALM_SQL_READ, &sql));
    ck_ok(calm_sql_first(ctx, sql, "PRAGMA integrity_check", CALM_NONE, &row));
    ck_assert(calm_sql_next(ctx, sql, row));
    ck_ok(calm_sql_text(ctx, row, 0, &words));
    calm_sql_end(row);
    ck_assert_msg(strcmp(words, "ok") == 0, "call %ld: %s", at, words);
    ck_ok(calm_sql_first(ctx, sql, "PRAGMA foreign_key_check", CALM_NONE, &row));
    ck_assert_msg(!calm_sql_next(ctx, sql, row), "call %ld: a row without its parent", at);
    calm_sql_end(row);
    /* A candidate has all its scores and its blob, or is missing. */
    ck_ok(calm_sql_first(ctx, sql, "SELECT blob, (SELECT count(*) FROM score WHERE candidate_id = id) FROM candidate",
                         CALM_NONE, &row));
    while (calm_sql_next(ctx, sql, row)) {
        const char *digest;
        calm_mapping map;
        ck_ok(calm_sql_text(ctx, row, 0, &digest));
        ck_assert_int_eq(calm_sql_int(row, 1), 3);
        ck_ok(calm_blob_get(ctx, test_format("%s.blobs", path), digest, &map));
        calm_unmap_file(&map);
    }
    calm_sql_end(row);
    calm_sql_close(sql);
}

/* Blobs that no row names yet are whole as well; `all`: none is missing. */
static void check_blobs(const char *path, long at, bool all)
{
    static char bytes[BLOB_BYTES];
    for (int i = 0; i < N_CANDIDATES; i++) {
        char digest[CALM_SHA256_HEX];
        blob_of(i, bytes);
        ck_ok(calm_sha256_bytes(ctx, bytes, BLOB_BYTES, digest));
        bool there = calm_path_exists(test_format("%s.blobs/%.2s/%s", path, digest, digest + 2));
        ck_assert_msg((!there && !all) || calm_blob_present(test_format("%s.blobs", path), digest, BLOB_BYTES),
                      "call %ld: a half blob", at);
        ck_assert_msg(there || !all, "call %ld: no blob where this test looks for it", at);
    }
}

/* After the fault the store is consistent; run again it ends like one that was never disturbed. */
static void check_and_resume(const char *path, long at, const char *expected)
{
    if (calm_path_exists(path))
        check_database(path, at);
    check_blobs(path, at, false);
    ck_ok(play(path));
    ck_assert_msg(strcmp(contents(path), expected) == 0, "call %ld: the resumed store differs", at);
    check_database(path, at);
    check_blobs(path, at, true);
    ck_assert(!calm_path_exists(test_format("%s.new", path)));
    ck_ok(calm_remove_tree(ctx, test_format("%s.blobs", path)));
    ck_assert_int_eq(unlink(path), 0);
}

/* Returns the contents of an undisturbed store, and the number of calls that it took. */
static const char *undisturbed(long *calls)
{
    report clean;
    const char *path = test_format("%s/clean.db", test_directory());
    ck_assert(play_with(path, (fault){0}, &clean));
    ck_assert_msg(clean.status == CALM_OK, "%s", clean.message);
    *calls = clean.n_calls;
    ck_assert_int_gt(*calls, 40);
    const char *text = contents(path);
    ck_assert_uint_gt(strlen(text), 100);
    return text;
}

/* Returns the number of the call at point i of n evenly spaced points from the first call to the last. */
static long call_at(long i, long n, long calls)
{
    return 1 + i * (calls - 1) / (n - 1);
}

TEST(killed_at_every_call)
{
    long calls;
    const char *expected = undisturbed(&calls);
    for (long i = 0; i < KILL_POINTS; i++) {
        report said;
        long at = call_at(i, KILL_POINTS, calls);
        const char *path = test_format("%s/calm.db", test_directory());
        ck_assert_msg(!play_with(path, (fault){.at = at}, &said), "call %ld was not reached", at);
        check_and_resume(path, at, expected);
    }
}
END_OF_TEST

/* A failing call gives `expected`, or nothing was lost (the last checkpoint may fail: the log has it all). */
static void fail_every_call(int error, bool stays, calm_status expected)
{
    long calls, reported = 0;
    const char *contents_expected = undisturbed(&calls);
    for (long i = 0; i < FAIL_POINTS; i++) {
        report said;
        long at = call_at(i, FAIL_POINTS, calls);
        const char *path = test_format("%s/calm.db", test_directory());
        ck_assert(play_with(path, (fault){.at = at, .error = error, .stays = stays}, &said));
        if (said.status == CALM_OK) {
            ck_assert_msg(strcmp(contents(path), contents_expected) == 0, "call %ld failed unseen", at);
        } else {
            reported++;
            ck_assert_msg(said.status == expected, "call %ld: %s (%s)", at, calm_status_name(said.status),
                          said.message);
            ck_assert_msg(strchr(said.message, '/'), "call %ld: no file named: %s", at, said.message);
        }
        check_and_resume(path, at, contents_expected);
    }
    ck_assert_int_gt(2 * reported, FAIL_POINTS);
}

TEST(disk_full_from_every_call_on)
{
    fail_every_call(ENOSPC, true, CALM_ENOSPC);
}
END_OF_TEST

TEST(every_call_fails_once)
{
    fail_every_call(EIO, false, CALM_EIO);
}
END_OF_TEST

int main(void)
{
    return run_tests("store_faults", (const TTest *[]){killed_at_every_call, disk_full_from_every_call_on,
                                                       every_call_fails_once, NULL});
}
