/* Garbage collection: what is removed and what is kept, the same in a dry run; killed or refused at many calls, no
 * row names a missing blob.  The linker wraps calm_blob_remove (to kill there) and statvfs (to report a full disk). */
#include "store/gc.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ptq/base/file.h"
#include "store/blob.h"
#include "store/store_impl.h"
#include "tests/support/faults.h"
#include "tests/support/harness.h"
#include "tests/support/store_sample.h"

static long removals, kill_at_removal;
static bool no_room;

calm_status __real_calm_blob_remove(calm_ctx *c, const char *root, const char *digest);
calm_status __wrap_calm_blob_remove(calm_ctx *c, const char *root, const char *digest);
int __real_statvfs(const char *path, struct statvfs *out);
int __wrap_statvfs(const char *path, struct statvfs *out);

calm_status __wrap_calm_blob_remove(calm_ctx *c, const char *root, const char *digest)
{
    if (++removals == kill_at_removal)
        kill(getpid(), SIGKILL);
    return __real_calm_blob_remove(c, root, digest);
}

int __wrap_statvfs(const char *path, struct statvfs *out)
{
    const int code = __real_statvfs(path, out);
    if (no_room)
        out->f_bavail = 1;
    return code;
}

/* ---- a store with every kind of row ---- */

#define BLOB_BYTES 5000

static calm_store *store;

static const char *put_blob(int content)
{
    static char bytes[BLOB_BYTES];
    char *digest = test_format("%0*d", CALM_SHA256_HEX - 1, 0);
    for (size_t i = 0; i < BLOB_BYTES; i++)
        bytes[i] = (char)((size_t)content * 31 + i);
    ck_ok(calm_blob_put(ctx, calm_store_blobs(store), &(calm_blob_piece){bytes, BLOB_BYTES}, 1, digest));
    return digest;
}

/* Stores a candidate of a job with a separate chain; its blob has `content`. */
static int64_t put_candidate(const char *key, int64_t job, int64_t calibration, int content)
{
    const calm_store_score scores[] = {{NULL, "cka", 1e-5}, {"block", "rel_mse", 0.25}};
    const calm_store_candidate candidate = {.key = key, .job_id = job, .calibration_id = calibration, .algorithm = key,
                                            .chain = key, .scheme = "w4a16_g128", .blob = put_blob(content),
                                            .blob_bytes = BLOB_BYTES, .scores = scores, .n_scores = 2};
    int64_t id;
    ck_ok(calm_store_candidate_put(ctx, store, &candidate, &id));
    return id;
}

typedef struct model {
    int64_t id, job, block, calibration;
} model;

static model put_model(const char *name)
{
    model m;
    calm_store_model row = sample_model;
    calm_store_calibration calibration = sample_calibration;
    row.digest = row.name = calibration.key = name;
    ck_ok(calm_store_model_id(ctx, store, &row, &m.id));
    ck_ok(calm_store_calibration_id(ctx, store, &calibration, &m.calibration));
    ck_ok(calm_store_block_id(ctx, store, &(calm_store_block){m.id, 0, "b", "decoder"}, &m.block));
    const calm_store_job job = {.block_id = m.block, .role = "o", .name = "o", .sublayer = "attention", .linears = "o"};
    ck_ok(calm_store_job_id(ctx, store, &job, &m.job));
    ck_ok(calm_store_expert_put(ctx, store, m.job, m.calibration, 5));
    const calm_store_peak peak = {-1.5, 0, 1, 2, "the"};
    const calm_store_activation activation = {
        .model_id = m.id, .calibration_id = m.calibration, .hook = "h", .point = "o_in", .peaks = &peak, .n_peaks = 1};
    ck_ok(calm_store_activation_put(ctx, store, &activation));
    ck_ok(calm_store_context_put(ctx, store, m.calibration, 0, 1, "", " cat"));
    return m;
}

static int64_t put_evaluation(const char *key, int64_t model_id)
{
    const calm_store_window window = {.tokens = 511, .nll = 2, .kl = 0.1, .top1 = 400};
    const calm_store_evaluation row = {.key = key, .model_id = model_id, .subject = "hybrid", .text_name = "t",
                                       .tokens = 511, .nll = 2, .ppl = 7, .kl = 0.1, .top1 = 0.8, .windows = &window,
                                       .n_windows = 1};
    int64_t id;
    const calm_store_quantile quantile = {1, 0.5};
    const calm_store_range range = {1, 511, 511, 0.1};
    const calm_store_token token = {0, 5, 0.5, 3, 2, "the", " cat", " dog", " cat"};
    ck_ok(calm_store_evaluation_put(ctx, store, &row, &id));
    ck_ok(calm_store_divergence_put(ctx, store, id, &(calm_store_divergence){&quantile, &range, &token, 1, 1, 1}));
    return id;
}

static bool learns;    /* runs have a learned block each */

/* Stores a learned block of a run, with its candidate and blobs. */
static void put_learned(const char *key, const model *m, int64_t start, int64_t run)
{
    const char *name = test_format("learned %s", key);
    const int64_t candidate = put_candidate(name, m->job, m->calibration, 10 + atoi(key));
    const calm_store_learned row = {.key = name, .block_id = m->block, .calibration_id = m->calibration,
                                    .learner = "learn@1", .blob = put_blob(20 + atoi(key)), .blob_bytes = BLOB_BYTES,
                                    .loss_before = 0.5, .loss_after = 0.25, .changed = 3, .seconds = 1};
    int64_t id;
    ck_ok(calm_store_learned_put(ctx, store, &row, &candidate, &start, 1, &id));
    ck_ok(calm_store_run_learned(ctx, store, run, id));
}

/* Stores a run of a pool whose first candidate is chosen, with every kind of row; `status` NULL: killed. */
static void put_run(const char *key, const model *m, const int64_t *pool, size_t n, const char *status)
{
    int64_t run;
    const calm_store_run row = {.key = key, .model_id = m->id, .calibration_id = m->calibration};
    ck_ok(calm_store_run_begin(ctx, store, &row, &run, NULL));
    for (size_t i = 0; i < n; i++)
        ck_ok(calm_store_run_candidate(ctx, store, run, pool[i]));
    if (!status)
        return;
    const int64_t guard = put_evaluation(test_format("guard %s", key), m->id);
    const int64_t ablation = put_evaluation(test_format("ablation %s", key), m->id);
    ck_ok(calm_store_choice_put(ctx, store, &(calm_store_choice){run, m->job, pool[0], "o", "least", NULL, false}));
    ck_ok(calm_store_verdict_put(ctx, store, &(calm_store_verdict){run, guard, "guard", "hybrid", NAN, NAN}));
    const calm_store_ablation way = {.run_id = run, .subject = "gptq", .kind = "uniform", .evaluation_id = ablation};
    ck_ok(calm_store_ablation_put(ctx, store, &way));
    ck_ok(calm_store_artifact_put(ctx, store, &(calm_store_artifact){run, "out", "weights", 5, "x"}));
    ck_ok(calm_store_environment_put(ctx, store, run, "cpu", "one"));
    ck_ok(calm_store_stage_put(ctx, store, &(calm_store_stage){run, 0, "read", 1, 2, NAN}));
    ck_ok(calm_store_gate_put(ctx, store, &(calm_store_gate){run, 0, "kl <= 1", 0.1, true}));
    if (learns)
        put_learned(key, m, pool[0], run);
    ck_ok(calm_store_run_end(ctx, store, run, &(calm_store_outcome){.status = status, .result = "hybrid"}));
}

/* Run 1: candidates a b.  Run 2: b c, the same model; c's blob is also that of x, which no run has.  Run 3: killed,
 * of model n, whose candidate d no row gives to it.  Run 4: model p. */
static const char *fill(void)
{
    const char *path = sample_path();
    store = sample_open(path, CALM_STORE_WRITE);
    ck_ok(calm_store_begin(ctx, store));
    const model m = put_model("m"), n = put_model("n"), p = put_model("p");
    const int64_t a = put_candidate("a", m.job, m.calibration, 1), b = put_candidate("b", m.job, m.calibration, 2);
    const int64_t c = put_candidate("c", m.job, m.calibration, 3), e = put_candidate("e", p.job, p.calibration, 5);
    put_candidate("d", n.job, n.calibration, 4);
    put_candidate("x", m.job, m.calibration, 3);
    put_evaluation("seen by the killed run", n.id);
    put_evaluation("of nobody", m.id);
    put_run("1", &m, (int64_t[]){a, b}, 2, "finished");
    put_run("2", &m, (int64_t[]){b, c}, 2, "finished");
    put_run("3", &n, NULL, 0, NULL);
    put_run("4", &p, &e, 1, "failed");
    put_blob(6);    /* its writer was killed before the row */
    ck_ok(calm_store_commit(ctx, store));
    ck_ok(calm_write_file(ctx, test_format("%s.blobs/notes", path), "mine", 4));
    ck_ok(calm_make_directories(ctx, test_format("%s.blobs/zz", path)));
    calm_store_close(store);
    return path;
}

static const char *lines(const char *path, const char *query)
{
    calm_sql *sql;
    calm_statement *row;
    const char *all = "", *text;
    ck_ok(calm_sql_open(ctx, path, CALM_SQL_READ, &sql));
    ck_ok(calm_sql_first(ctx, sql, query, CALM_NONE, &row));
    while (calm_sql_next(ctx, sql, row)) {
        ck_ok(calm_sql_text(ctx, row, 0, &text));
        all = test_format("%s%s ", all, text ? text : "NULL");
    }
    calm_sql_end(row);
    calm_sql_close(sql);
    return all;
}

static const char all_rows[] =
    "SELECT line FROM (SELECT 'run ' || key AS line FROM run UNION SELECT 'candidate ' || key || ' ' || (SELECT "
    "count(*) FROM score WHERE candidate_id = id) FROM candidate UNION SELECT 'algorithm ' || name FROM algorithm "
    "UNION SELECT 'evaluation ' || key FROM evaluation UNION SELECT 'calibration ' || key FROM calibration UNION "
    "SELECT 'model ' || digest FROM model UNION SELECT 'activation ' || model_id || ' ' || (SELECT count(*) FROM "
    "activation_peak) FROM activation UNION SELECT 'gate ' || run_id FROM gate UNION SELECT 'pool ' || run_id || ' ' "
    "|| candidate_id FROM run_candidate UNION SELECT 'expert ' || job_id FROM expert UNION SELECT 'job ' || id FROM "
    "job) ORDER BY 1";

static calm_status count_blob(calm_ctx *c, void *user, const char *digest, size_t n_bytes)
{
    (void)c;
    ck_assert_uint_eq(n_bytes, BLOB_BYTES);
    *(const char **)user = test_format("%s%.8s ", *(const char **)user, digest);
    return CALM_OK;
}

static size_t n_blobs(const char *path)
{
    const char *all = "";
    ck_ok(calm_blob_walk(ctx, test_format("%s.blobs", path), count_blob, &all));
    return strlen(all) / 9;
}

/* Checks that the store is sound, and that every blob with a row is whole. */
static void check_sound(const char *path, long at)
{
    ck_assert_msg(strcmp(lines(path, "PRAGMA integrity_check"), "ok ") == 0, "call %ld", at);
    ck_assert_msg(strcmp(lines(path, "PRAGMA foreign_key_check"), "") == 0, "call %ld: a row without its parent", at);
    char *digests = test_format("%s", lines(path, "SELECT DISTINCT blob FROM candidate WHERE blob IS NOT NULL"));
    for (char *rest, *digest = strtok_r(digests, " ", &rest); digest; digest = strtok_r(NULL, " ", &rest)) {
        calm_mapping map;
        ck_ok(calm_blob_get(ctx, test_format("%s.blobs", path), digest, &map));
        calm_unmap_file(&map);
    }
}

static void collect(const char *path, calm_gc_plan plan, calm_gc_result *out)
{
    store = sample_open(path, plan.dry_run ? CALM_STORE_READ : CALM_STORE_WRITE);
    ck_ok(calm_store_gc(ctx, store, &plan, out));
    calm_store_close(store);
}

static const calm_gc_kind *kind(const calm_gc_result *result, const char *name)
{
    for (size_t i = 0; i < result->n_kinds; i++)
        if (strcmp(result->kinds[i].kind, name) == 0)
            return &result->kinds[i];
    ck_abort_msg("no kind %s", name);
}

/* A dry run gives the same numbers and changes nothing; then the collection is made, and a second one has nothing to
 * do. */
static void collect_checked(const char *path, calm_gc_plan plan, calm_gc_result *out)
{
    calm_gc_result dry, again;
    const char *before = lines(path, all_rows);
    const size_t blobs_before = n_blobs(path);
    plan.dry_run = true;
    collect(path, plan, &dry);
    ck_assert_str_eq(lines(path, all_rows), before);
    ck_assert_uint_eq(n_blobs(path), blobs_before);
    plan.dry_run = false;
    collect(path, plan, out);
    ck_assert_uint_eq(dry.n_kinds, out->n_kinds);
    for (size_t i = 0; i < dry.n_kinds; i++)
        ck_assert_msg(dry.kinds[i].rows == out->kinds[i].rows && dry.kinds[i].bytes == out->kinds[i].bytes, "%s",
                      dry.kinds[i].kind);
    ck_assert_uint_eq(n_blobs(path), blobs_before - (size_t)kind(out, "blob")->rows);
    ck_assert_int_eq(kind(out, "blob")->bytes, kind(out, "blob")->rows * BLOB_BYTES);
    check_sound(path, 0);
    collect(path, (calm_gc_plan){.keep = -1}, &again);
    for (size_t i = 0; i < again.n_kinds; i++)
        ck_assert_msg(again.kinds[i].rows == 0, "%s", again.kinds[i].kind);
}

/* ---- what is removed ---- */

TEST(without_dropping_a_run)
{
    const char *path = fill();
    calm_gc_result freed;
    collect_checked(path, (calm_gc_plan){.keep = -1}, &freed);
    ck_assert(freed.n_dropped == 0 && freed.n_kept == 4);
    ck_assert_int_eq(kind(&freed, "candidate")->rows, 1);    /* x */
    ck_assert_int_eq(kind(&freed, "score")->rows, 2);
    ck_assert_int_eq(kind(&freed, "algorithm")->rows, 1);
    ck_assert_int_eq(kind(&freed, "evaluation")->rows, 1);    /* of no run */
    ck_assert_int_eq(kind(&freed, "blob")->rows, 1);         /* of the killed writer: x's is also c's */
    ck_assert_int_eq(kind(&freed, "model")->rows, 0);
    ck_assert_str_eq(lines(path, "SELECT key FROM candidate ORDER BY 1"), "a b c d e ");
    ck_assert(calm_path_exists(test_format("%s.blobs/notes", path)));
    ck_assert(calm_path_exists(test_format("%s.blobs/zz", path)));
}
END_OF_TEST

TEST(dropped_runs)
{
    learns = true;
    const char *path = fill();
    learns = false;
    calm_gc_result freed;
    collect_checked(path, (calm_gc_plan){.keep = -1, .drop = (int64_t[]){1, 4, 1}, .n_drop = 3}, &freed);
    ck_assert(freed.n_dropped == 2 && freed.dropped[0] == 1 && freed.dropped[1] == 4);
    ck_assert(freed.n_kept == 2 && freed.kept[0] == 2 && freed.kept[1] == 3);
    ck_assert_str_eq(lines(path, "SELECT key FROM run"), "2 3 ");
    ck_assert_str_eq(lines(path, "SELECT key FROM candidate ORDER BY 1"), "b c d learned 2 ");
    ck_assert_str_eq(lines(path, "SELECT key FROM learned"), "learned 2 ");
    ck_assert_str_eq(lines(path, "SELECT key FROM evaluation ORDER BY 1"),
                     "ablation 2 guard 2 seen by the killed run ");
    ck_assert_str_eq(lines(path, "SELECT digest FROM model ORDER BY 1"), "m n ");
    ck_assert_str_eq(lines(path, "SELECT key FROM calibration ORDER BY 1"), "m n ");
    ck_assert_str_eq(lines(path, "SELECT model_id FROM activation ORDER BY 1"), "1 2 ");
    static const struct {
        const char *kind;
        int64_t rows;
    } expected[] = {{"gate", 2},
                    {"environment", 2},
                    {"run_stage", 2},
                    {"artifact", 2},
                    {"ablation", 2},
                    {"run_evaluation", 2},
                    {"choice", 2},
                    {"run_candidate", 3},
                    {"run_learned", 2},
                    {"learned_candidate", 2},
                    {"learned", 2},
                    {"run", 2},
                    {"score", 10},
                    {"candidate", 5},
                    {"algorithm", 5},
                    {"evaluation_window", 5},
                    {"divergence_quantile", 5},
                    {"divergence_position", 5},
                    {"divergence_token", 5},
                    {"evaluation", 5},
                    {"activation_peak", 1},
                    {"activation", 1},
                    {"token_context", 1},
                    {"expert", 1},
                    {"calibration", 1},
                    {"job", 1},
                    {"block", 1},
                    {"model", 1},
                    {"blob", 7}};
    const size_t n = sizeof expected / sizeof *expected;
    ck_assert_uint_eq(freed.n_kinds, n + 1);    /* the rows of the killed run's guard: there are none */
    ck_assert_int_eq(kind(&freed, "guard")->rows, 0);
    ck_assert_int_eq(freed.beside_bytes, kind(&freed, "blob")->bytes);
    int64_t rows = 0;
    for (size_t i = 0; i < n; i++) {
        rows += i + 1 < n ? expected[i].rows : 0;
        ck_assert_int_eq(kind(&freed, expected[i].kind)->rows, expected[i].rows);
        ck_assert_int_gt(kind(&freed, expected[i].kind)->bytes, 0);
    }
    ck_assert_int_eq(freed.rows, rows);
}
END_OF_TEST

/* They stay if a run will continue with them, and are removed otherwise. */
TEST(rows_of_a_guard)
{
    const char *path = fill(), *rows = test_format("%s.guard", path), *half = test_format("%s.guard.new", path);
    calm_gc_result freed;
    ck_ok(calm_write_file(ctx, rows, "rows", 4));
    ck_ok(calm_write_file(ctx, half, "half an", 7));
    collect(path, (calm_gc_plan){.keep = -1}, &freed);    /* runs 3 and 4 did not finish */
    ck_assert_int_eq(kind(&freed, "guard")->rows, 0);
    ck_assert(calm_path_exists(rows) && calm_path_exists(half));
    collect(path, (calm_gc_plan){.keep = -1, .drop = (int64_t[]){3, 4}, .n_drop = 2, .dry_run = true}, &freed);
    ck_assert_int_eq(kind(&freed, "guard")->rows, 2);
    ck_assert(calm_path_exists(rows) && calm_path_exists(half));
    collect(path, (calm_gc_plan){.keep = -1, .drop = (int64_t[]){3, 4}, .n_drop = 2}, &freed);
    ck_assert_int_eq(kind(&freed, "guard")->rows, 2);
    ck_assert_int_eq(kind(&freed, "guard")->bytes, 11);
    ck_assert_int_eq(freed.beside_bytes, 11 + kind(&freed, "blob")->bytes);
    ck_assert(!calm_path_exists(rows) && !calm_path_exists(half));
}
END_OF_TEST

TEST(the_newest_stay)
{
    const char *path = fill();
    calm_gc_result freed;
    collect_checked(path, (calm_gc_plan){.keep = 2}, &freed);
    ck_assert_str_eq(lines(path, "SELECT key FROM run"), "3 4 ");
    ck_assert_str_eq(lines(path, "SELECT key FROM candidate ORDER BY 1"), "d e ");
    collect_checked(path, (calm_gc_plan){.keep = 1, .drop = (int64_t[]){4}, .n_drop = 1}, &freed);
    ck_assert_str_eq(lines(path, all_rows), "");
    ck_assert_uint_eq(n_blobs(path), 0);
    ck_assert_str_eq(lines(path, "SELECT count(*) FROM expert"), "0 ");
}
END_OF_TEST

/* A link in the folder of blobs is not followed: it may lead into another store's. */
TEST(links_are_not_followed)
{
    const char *path = fill(), *other = sample_path();
    calm_gc_result freed;
    store = sample_open(other, CALM_STORE_WRITE);
    const char *digest = put_blob(7);
    calm_store_close(store);
    const char *link = test_format("%s.blobs/%.2s", path, digest);
    ck_assert_msg(!calm_path_exists(link), "another content is needed");
    ck_assert_int_eq(symlink(test_format("%s.blobs/%.2s", other, digest), link), 0);
    collect(path, (calm_gc_plan){.keep = 0}, &freed);
    ck_assert_int_eq(kind(&freed, "blob")->rows, 6);
    ck_assert_str_eq(lines(path, all_rows), "");
    ck_assert(calm_blob_present(test_format("%s.blobs", other), digest, BLOB_BYTES));
}
END_OF_TEST

TEST(no_such_run)
{
    const char *path = fill(), *before = lines(path, all_rows);
    calm_gc_result freed;
    for (int dry = 0; dry < 2; dry++) {
        store = sample_open(path, dry ? CALM_STORE_READ : CALM_STORE_WRITE);
        ck_fails(calm_store_gc(ctx, store,
                               &(calm_gc_plan){.keep = -1, .drop = (int64_t[]){1, 7}, .n_drop = 2, .dry_run = dry},
                               &freed),
                 CALM_ENOTFOUND, test_format("%s: no run 7 to drop; it has 1, 2, 3, 4", path));
        calm_store_close(store);
        ck_assert_str_eq(lines(path, all_rows), before);
        ck_assert_uint_eq(n_blobs(path), 6);
    }
}
END_OF_TEST

/* A new table of the schema must be collected, or be listed here. */
TEST(every_table)
{
    const char *path = fill();
    calm_gc_result freed;
    collect(path, (calm_gc_plan){.keep = -1, .dry_run = true}, &freed);
    char *tables = test_format("%s", lines(path, "SELECT name FROM sqlite_master WHERE type = 'table'"));
    size_t n = 2;    /* guard and blob */
    for (char *rest, *name = strtok_r(tables, " ", &rest); name; name = strtok_r(NULL, " ", &rest), n++)
        ck_assert_str_eq(kind(&freed, name)->kind, name);
    ck_assert_uint_eq(freed.n_kinds, n);
}
END_OF_TEST

/* ---- the file ---- */

TEST(the_file_shrinks_where_there_is_room)
{
    const char *path = fill();
    calm_gc_result freed;
    store = sample_open(path, CALM_STORE_WRITE);
    ck_ok(calm_store_begin(ctx, store));
    for (int i = 0; i < 500; i++)
        put_candidate(test_format("more %d", i), 1, 1, 3);
    ck_ok(calm_store_commit(ctx, store));
    calm_store_close(store);
    no_room = true;
    collect(path, (calm_gc_plan){.keep = -1, .drop = (int64_t[]){1}, .n_drop = 1}, &freed);
    no_room = false;
    ck_assert_int_eq(freed.bytes_after, freed.bytes_before);
    ck_assert_msg(strstr(freed.note, "not compacted: that takes "), "%s", freed.note);
    ck_assert_str_eq(lines(path, "SELECT count(*) FROM candidate"), "4 ");
    collect(path, (calm_gc_plan){.keep = -1}, &freed);
    ck_assert_ptr_null(freed.note);
    ck_assert_int_lt(2 * freed.bytes_after, freed.bytes_before + freed.bytes_after);
    check_sound(path, 0);
    /* A reader keeps reading during the collection, and sees what it saw. */
    store = sample_open(path, CALM_STORE_READ);
    calm_store *reader = store;
    ck_assert_int_eq(sample_number(reader, "SELECT count(*) FROM run"), 3);
    collect(path, (calm_gc_plan){.keep = 1}, &freed);
    ck_assert_int_eq(sample_number(reader, "SELECT count(*) FROM run"), 1);
    calm_store_close(reader);
}
END_OF_TEST

/* ---- when the machine fails on the way ---- */

typedef struct word {
    calm_status status;
    long calls;
    char message[CALM_MESSAGE_MAX];
} word;

/* Drops runs 1 and 4 in a child; returns false if it was killed. */
static bool collect_with(const char *path, fault wanted, word *said)
{
    int ends[2], status;
    word heard = {CALM_OK, 0, ""};
    ck_assert_int_eq(pipe(ends), 0);
    removals = 0;
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        calm_gc_result freed;
        fault_plan(wanted);
        heard.status = calm_store_open(ctx, path, &sample_writing, &store);
        if (heard.status == CALM_OK)
            heard.status = calm_store_gc(ctx, store,
                                         &(calm_gc_plan){.keep = -1, .drop = (int64_t[]){1, 4}, .n_drop = 2}, &freed);
        calm_store_close(store);
        heard.calls = fault_calls();
        fault_plan((fault){0});
        memcpy(heard.message, ctx->message, CALM_MESSAGE_MAX);
        _exit(write(ends[1], &heard, sizeof heard) != sizeof heard);
    }
    close(ends[1]);
    const bool told = read(ends[0], &heard, sizeof heard) == sizeof heard;
    close(ends[0]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status) ? told : WTERMSIG(status) == SIGKILL);
    *said = heard;
    return WIFEXITED(status);
}

typedef struct outcome {
    const char *before, *after;
    size_t n_after;
} outcome;

/* Checks that the store is as before or as after the collection, and after another one as after it; returns whether
 * it was as after it. */
static bool check_whole(const char *path, const outcome *expected, long at)
{
    calm_gc_result freed;
    const char *now = lines(path, all_rows);
    check_sound(path, at);
    const bool done = strcmp(now, expected->before) != 0;
    ck_assert_msg(!done || strcmp(now, expected->after) == 0, "call %ld: half of the rows: %s", at, now);
    collect(path, (calm_gc_plan){.keep = -1, .drop = (int64_t[]){1, 4}, .n_drop = done ? 0 : 2}, &freed);
    ck_assert_str_eq(lines(path, all_rows), expected->after);
    ck_assert_uint_eq(n_blobs(path), expected->n_after);
    check_sound(path, at);
    ck_ok(calm_remove_tree(ctx, test_format("%s.blobs", path)));
    return done;
}

#ifdef CALM_SANITIZED
#define POINTS 8L
#else
#define POINTS 40L
#endif

TEST(killed_or_refused_at_many_calls)
{
    word said;
    long killed_after = 0, refused = 0, refused_after = 0;
    const char *path = fill();
    outcome expected = {.before = lines(path, all_rows)};
    ck_assert(collect_with(path, (fault){0}, &said));
    ck_assert_msg(said.status == CALM_OK, "%s", said.message);
    const long calls = said.calls;
    ck_assert_int_gt(calls, 10);
    expected.after = lines(path, all_rows);
    expected.n_after = n_blobs(path);
    ck_assert_uint_eq(expected.n_after, 3);
    for (long i = 0; i < POINTS; i++) {
        const long at = 1 + i * (calls - 1) / (POINTS - 1);
        path = fill();
        ck_assert_msg(!collect_with(path, (fault){.at = at}, &said), "call %ld was not reached", at);
        killed_after += check_whole(path, &expected, at);
        path = fill();
        ck_assert(collect_with(path, (fault){.at = at, .error = ENOSPC, .stays = true}, &said));
        ck_assert_msg(said.status == CALM_OK || said.status == CALM_ENOSPC, "call %ld: %s", at, said.message);
        refused += said.status != CALM_OK;
        refused_after += check_whole(path, &expected, at);
    }
    ck_assert_int_gt(killed_after, 0);
    ck_assert_int_lt(killed_after, POINTS);
    ck_assert_int_gt(refused, 0);
    ck_assert_int_lt(refused_after, POINTS);
    /* Rows are gone, and some of the blobs. */
    for (kill_at_removal = 1; kill_at_removal <= 3; kill_at_removal++) {
        path = fill();
        ck_assert(!collect_with(path, (fault){0}, &said));
        ck_assert_str_eq(lines(path, all_rows), expected.after);
        ck_assert_uint_eq(n_blobs(path), 6 - (size_t)kill_at_removal + 1);
        const long at = kill_at_removal;
        kill_at_removal = 0;
        check_whole(path, &expected, at);
        kill_at_removal = at;
    }
    kill_at_removal = 0;
}
END_OF_TEST

int main(void)
{
    return run_tests("store_gc", (const TTest *[]){without_dropping_a_run, dropped_runs, rows_of_a_guard,
                                                   the_newest_stay, links_are_not_followed, no_such_run,
                                                   every_table, the_file_shrinks_where_there_is_room,
                                                   killed_or_refused_at_many_calls, NULL});
}
