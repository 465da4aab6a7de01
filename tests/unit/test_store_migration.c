/* Stores of versions 1, 2 and 4 (tests/data/store_v1.sql, store_v4.sql): migrated with every row, refused with a hint
 * for reading, refused unchanged when damaged, kept as a copy, and whole when the machine fails midway. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ptq/base/file.h"
#include "store/sql.h"
#include "store/store.h"
#include "tests/support/faults.h"
#include "tests/support/harness.h"
#include "tests/support/store_sample.h"

static void run_script(const char *path, const char *script)
{
    calm_sql *sql;
    ck_ok(calm_sql_open(ctx, path, CALM_SQL_CREATE, &sql));
    ck_ok(calm_sql_script(ctx, sql, script));
    calm_sql_close(sql);
}

/* Returns the first column of every row of a query. */
static const char *lines(calm_sql *sql, const char *query)
{
    calm_statement *row;
    const char *all = "", *text;
    ck_ok(calm_sql_first(ctx, sql, query, CALM_NONE, &row));
    while (calm_sql_next(ctx, sql, row)) {
        ck_ok(calm_sql_text(ctx, row, 0, &text));
        all = test_format("%s%s\n", all, text ? text : "NULL");
    }
    calm_sql_end(row);
    return all;
}

/* Returns the rows of a table, one per line: these columns, joined by commas or spaces, each followed by a space. */
static const char *rows_of(calm_sql *sql, const char *columns, const char *from)
{
    char *rest, *list = test_format("%s", columns);
    const char *query = "SELECT ''";
    for (char *name = strtok_r(list, " ,", &rest); name; name = strtok_r(NULL, " ,", &rest))
        query = test_format("%s || quote(\"%s\") || ' '", query, name);
    return lines(sql, test_format("%s FROM %s ORDER BY 1", query, from));
}

static const char *schema_of_version(int version)
{
    char *schema;
    size_t n;
    ck_ok(calm_read_file(ctx, test_data(test_format("store_v%d.sql", version)), 1 << 20, &schema, &n));
    ck_assert_ptr_nonnull(strstr(schema, test_format("PRAGMA user_version = %d;", version)));
    return schema;
}

/* Returns a line for each table of version 1: its columns joined by commas, a space and its name. */
static char *old_tables(void)
{
    calm_sql *sql;
    ck_ok(calm_sql_open(ctx, ":memory:", CALM_SQL_CREATE, &sql));
    ck_ok(calm_sql_script(ctx, sql, schema_of_version(1)));
    char *names = test_format(
        "%s", lines(sql, "SELECT (SELECT group_concat(name) FROM pragma_table_info(m.name)) || ' ' || m.name"
                         " FROM sqlite_master m WHERE m.type = 'table' ORDER BY m.name"));
    calm_sql_close(sql);
    return names;
}

/* Makes a store of today's version with rows in every table, whose run has ended. */
static const char *fill(void)
{
    const char *path = sample_path();
    calm_store *store = sample_open(path, CALM_STORE_WRITE);
    const sample s = sample_fill(store);
    const calm_store_score scores[] = {{NULL, "cka", 1e-5}, {"block", "rel_mse", 0.25}};
    const calm_store_candidate candidate = {.key = "k1",
                                            .job_id = s.qkv,
                                            .calibration_id = s.calibration,
                                            .algorithm = "gptq",
                                            .chain = "absmax@1+gptq@1",
                                            .scheme = "w4a16_g128",
                                            .blob = "b1",
                                            .blob_bytes = 9,
                                            .bits_per_weight = 4.125,
                                            .damp = 0.01,
                                            .scores = scores,
                                            .n_scores = 2};
    const calm_store_peak peak = {-123.5, 3, 17, 42, "the\n"};
    const calm_store_activation activation = {.model_id = s.model,
                                              .calibration_id = s.calibration,
                                              .point = "qkv_in",
                                              .hook = "model.layers.0.qkv_in",
                                              .channels = 64,
                                              .count = 640,
                                              .n_tokens = 10,
                                              .max_abs = 123.5,
                                              .q50 = 0.5,
                                              .peaks = &peak,
                                              .n_peaks = 1};
    const calm_store_window window = {.tokens = 511, .nll = 2.5, .kl = 0.1, .top1 = 0.75};
    const calm_store_evaluation evaluation = {.key = "e1", .model_id = s.model, .subject = "float", .text_name = "t",
                                              .window_tokens = 512, .tokens = 511, .nll = 2.5, .ppl = 12.18, .kl = NAN,
                                              .top1 = NAN, .windows = &window, .n_windows = 1};
    const calm_store_artifact artifact = {
        .run_id = s.run, .path = "out/config.json", .role = "config", .bytes = 5, .sha256 = "x"};
    int64_t id, eval;
    ck_ok(calm_store_candidate_put(ctx, store, &candidate, &id));
    ck_ok(calm_store_run_candidate(ctx, store, s.run, id));
    ck_ok(calm_store_choice_put(ctx, store, &(calm_store_choice){.run_id = s.run, .job_id = s.qkv, .candidate_id = id,
                                                                .unit = "model.layers.0.qkv", .reason = "least"}));
    ck_ok(calm_store_activation_put(ctx, store, &activation));
    ck_ok(calm_store_evaluation_put(ctx, store, &evaluation, &eval));
    ck_ok(calm_store_verdict_put(ctx, store,
                                 &(calm_store_verdict){.run_id = s.run,
                                                       .evaluation_id = eval,
                                                       .role = "test",
                                                       .subject = "float",
                                                       .delta = NAN,
                                                       .delta_se = NAN}));
    ck_ok(calm_store_artifact_put(ctx, store, &artifact));
    ck_ok(calm_store_run_end(ctx, store, s.run, &(calm_store_outcome){.status = "finished", .result = "gptq"}));
    calm_store_close(store);
    return path;
}

/* Makes the same rows in a database of version 1, alone in its folder. */
static const char *old_store(void)
{
    const char *from = fill(), *path = sample_path(), *script = test_format("ATTACH '%s' AS new;", from);
    run_script(path, schema_of_version(1));
    for (char *rest, *columns = strtok_r(old_tables(), "\n", &rest); columns; columns = strtok_r(NULL, "\n", &rest)) {
        char *name = strchr(columns, ' ');
        *name++ = '\0';
        script = test_format("%sINSERT INTO main.%s SELECT %s FROM new.%s;", script, name, columns, name);
    }
    /* In any order of tables. */
    run_script(path, test_format("PRAGMA foreign_keys = OFF; %s PRAGMA wal_checkpoint(TRUNCATE)", script));
    return path;
}

/* Returns every row of every table, without those of later versions. */
static const char *contents(const char *path)
{
    calm_sql *sql;
    const char *all = "";
    ck_ok(calm_sql_open(ctx, path, CALM_SQL_READ, &sql));
    for (char *rest, *columns = strtok_r(old_tables(), "\n", &rest); columns; columns = strtok_r(NULL, "\n", &rest)) {
        char *name = strchr(columns, ' ');
        *name++ = '\0';
        const char *rows = rows_of(sql, columns, name);
        ck_assert_msg(rows[0], "%s is empty: the test fills every table", name);
        all = test_format("%s%s\n%s", all, name, rows);
    }
    calm_sql_close(sql);
    return all;
}

/* Returns the schema as text, sorted. */
static const char *schema_of(const char *path)
{
    calm_sql *sql;
    ck_ok(calm_sql_open(ctx, path, CALM_SQL_READ, &sql));
    const char *text = lines(sql, "SELECT type || name || coalesce(sql, '') FROM sqlite_master ORDER BY 1");
    calm_sql_close(sql);
    return text;
}

static int64_t version_of(const char *path)
{
    calm_sql *sql;
    int64_t version;
    ck_ok(calm_sql_open(ctx, path, CALM_SQL_READ, &sql));
    ck_ok(calm_sql_number(ctx, sql, "PRAGMA user_version", CALM_NONE, &version));
    calm_sql_close(sql);
    return version;
}

/* ---- migrated ---- */

/* Checks that the store has today's version, with the schema of a new store. */
static void ck_up_to_date(const char *path)
{
    const char *fresh = sample_path();
    ck_assert_int_eq(version_of(path), calm_store_version());
    calm_store_close(sample_open(fresh, CALM_STORE_WRITE));
    ck_assert_str_eq(schema_of(path), schema_of(fresh));
}

TEST(every_row_is_kept)
{
    const char *path = old_store(), *before = contents(path);
    ck_assert_int_eq(version_of(path), 1);
    calm_store_close(sample_open(path, CALM_STORE_WRITE));
    ck_assert_str_eq(contents(path), before);
    ck_up_to_date(path);
    /* And it is a store like any other. */
    calm_store *store = sample_open(path, CALM_STORE_WRITE);
    ck_ok(calm_store_expert_put(ctx, store, 1, 1, 77));
    ck_assert_int_eq(sample_number(store, "SELECT tokens FROM expert"), 77);
    const calm_store_ablation row = {.run_id = 1, .subject = "gptq", .kind = "uniform", .evaluation_id = 1};
    ck_ok(calm_store_ablation_put(ctx, store, &row));
    ck_assert_str_eq(sample_text(store, "SELECT subject FROM v_ablation"), "gptq");
    ck_ok(calm_store_environment_put(ctx, store, 1, "kernels", "Haswell"));
    ck_assert_str_eq(sample_text(store, "SELECT value FROM environment WHERE name = 'kernels'"), "Haswell");
    ck_ok(calm_store_gate_put(ctx, store, &(calm_store_gate){1, 0, "kl <= 0.1", 0.05, true}));
    ck_assert_int_eq(sample_number(store, "SELECT holds FROM gate"), 1);
    ck_assert_str_eq(sample_text(store, "SELECT algorithm FROM v_choices"), "gptq");
    ck_assert_int_eq(sample_number(store, "SELECT count(*) FROM v_experts"),
                     sample_number(store, "SELECT count(*) FROM choice WHERE job_id = 1"));
    calm_store_close(store);
    store = sample_open(path, CALM_STORE_READ);
    ck_assert_int_eq(sample_number(store, "SELECT tokens FROM expert"), 77);
    calm_store_close(store);
}
END_OF_TEST

/* Makes an empty store with the schema of version 4 less what `version` did not have. */
static const char *empty_store(int version)
{
    const char *path = sample_path();
    run_script(path, schema_of_version(4));
    if (version < 4)
        run_script(path, "DROP TABLE environment; DROP TABLE gate");
    if (version < 3)
        run_script(path, "DROP VIEW v_ablation; DROP TABLE ablation");
    run_script(path, test_format("PRAGMA user_version = %d; PRAGMA wal_checkpoint(TRUNCATE)", version));
    return path;
}

/* Version 2 has experts and no ablation: its tables are kept. */
TEST(version_2)
{
    const char *path = empty_store(2);
    calm_store *store;
    run_script(path, "INSERT INTO model (id, digest, name, architecture) VALUES (1, 'd', 'm', 'a');"
                     "INSERT INTO calibration (id, key, text_name, n_windows, window_tokens, n_tokens)"
                     " VALUES (1, 'c', 't', 1, 2, 2);"
                     "INSERT INTO block (id, model_id, number, name, kind) VALUES (1, 1, 0, 'b', 'decoder');"
                     "INSERT INTO job (id, block_id, role, position, name, sublayer, linears, out_features,"
                     " in_features) VALUES (1, 1, 'o', 0, 'o', 'attention', 'o', 1, 1);"
                     "INSERT INTO expert VALUES (1, 1, 77);"
                     "PRAGMA wal_checkpoint(TRUNCATE)");
    ck_fails(calm_store_open(ctx, path, NULL, &store), CALM_EUNSUPPORTED, "written by an older calm");
    store = sample_open(path, CALM_STORE_WRITE);
    ck_assert_int_eq(sample_number(store, "SELECT tokens FROM expert"), 77);
    ck_assert_int_eq(sample_number(store, "SELECT count(*) FROM ablation"), 0);
    calm_store_close(store);
    ck_up_to_date(path);
    path = empty_store(2);
    run_script(path, "DROP VIEW v_experts; DROP TABLE expert; PRAGMA wal_checkpoint(TRUNCATE)");
    ck_fails(calm_store_open(ctx, path, &sample_writing, &store), CALM_EFORMAT, "\"expert\" is missing");
}
END_OF_TEST

/* Version 5 has no learned blocks, version 6 no rows of single tokens, version 7 no times of stages. */
TEST(versions_5_to_7)
{
    static const char *const later[] = {"DROP TABLE run_learned; DROP TABLE learned_candidate; DROP TABLE learned",
                                        "DROP TABLE token_context; DROP TABLE divergence_quantile; DROP TABLE"
                                        " divergence_position; DROP TABLE divergence_token", "DROP TABLE run_stage"};
    for (int version = 5; version <= 7; version++) {
        const char *path = fill();
        for (int i = version; i <= 7; i++)
            run_script(path, later[i - 5]);
        run_script(path, test_format("PRAGMA user_version = %d; PRAGMA wal_checkpoint(TRUNCATE)", version));
        const char *before = contents(path);
        calm_store_close(sample_open(path, CALM_STORE_WRITE));
        ck_assert_str_eq(contents(path), before);
        ck_up_to_date(path);
    }
}
END_OF_TEST

/* Makes a store of version 4 with a decoder (model 1) and an encoder (2), whose relative error is in nll, 1 - cosine
 * in kl and rank correlation in top1; evaluation 2 is a guard's, 3 the final one with its row of `encoding`. */
static const char *store_with_encoder(void)
{
    const char *path = empty_store(4);
    run_script(path,
               "INSERT INTO model (id, digest, name, architecture) VALUES (1, 'd', 'qwen', 'a'), (2, 'e', 'bert', 'a');"
               "INSERT INTO block (id, model_id, number, name, kind)"
               " VALUES (1, 1, 0, 'b', 'decoder'), (2, 2, 0, 'b', 'encoder');"
               "INSERT INTO run (id, key, model_id, status) VALUES (1, 'r1', 1, 'finished'), (2, 'r2', 2, 'finished');"
               "INSERT INTO evaluation (id, key, model_id, subject, text_name, window_tokens, n_windows, tokens, nll,"
               " ppl, kl, top1, created_at)"
               " VALUES (1, 'k1', 1, 'gptq', 't', 512, 1, 511, 2.5, 12.1825, 0.1, 0.75, 'x'),"
               " (2, 'k2', 2, 'hybrid', 't', 128, 3, 3, 0.5, 1.6487, 0.25, 0.625, 'y'),"
               " (3, 'k3', 2, 'gptq', 't', 128, 2, 2, 0.375, 1.4549, 0.125, NULL, 'z');"
               "INSERT INTO evaluation_window VALUES (1, 0, 511, 1277.5, 51.1, 383), (2, 0, 1, 0.25, 0.125, 0),"
               " (2, 1, 1, 0.75, 0.5, 0), (2, 2, 1, 0.5, 0.125, 0), (3, 0, 1, 0.375, 0.125, 0),"
               " (3, 1, 1, 0.375, 0.125, 0);"
               "INSERT INTO encoding VALUES (3, 2, 1, 0.375, 0.875, 0.8125, NULL);"
               "INSERT INTO run_evaluation VALUES (1, 'guard', 'gptq', 1, 0.5, 0.25), (2, 'guard', 'hybrid', 2, 0.0625,"
               " 0.03125), (2, 'test', 'gptq', 3, NULL, NULL);"
               "INSERT INTO ablation (run_id, subject, kind, evaluation_id, failure, delta_kl, delta_se) VALUES"
               " (1, 'gptq', 'uniform', 1, NULL, 0.75, 0.5), (2, 'gptq', 'uniform', 3, NULL, -0.75, 0.25),"
               " (2, 'rtn', 'uniform', NULL, 'why', NULL, NULL);"
               "PRAGMA wal_checkpoint(TRUNCATE)");
    return path;
}

TEST(figures_of_an_encoder_get_their_own_columns)
{
    const char *path = store_with_encoder();
    calm_store_close(sample_open(path, CALM_STORE_WRITE));
    ck_up_to_date(path);
    calm_sql *sql;
    ck_ok(calm_sql_open(ctx, path, CALM_SQL_READ, &sql));
    ck_assert_str_eq(rows_of(sql, "id key model_id subject text_name window_tokens n_windows created_at", "evaluation"),
                     "1 'k1' 1 'gptq' 't' 512 1 'x' \n"
                     "2 'k2' 2 'hybrid' 't' 128 3 'y' \n"
                     "3 'k3' 2 'gptq' 't' 128 2 'z' \n");
    ck_assert_str_eq(rows_of(sql, "id kind tokens nll ppl kl top1", "evaluation"),
                     "1 'predictions' 511 2.5 12.1825 0.1 0.75 \n"
                     "2 'embeddings' NULL NULL NULL NULL NULL \n"
                     "3 'embeddings' NULL NULL NULL NULL NULL \n");
    /* The guard's has three pairs, and the least cosine of its sentences; the final one has the values of its row. */
    ck_assert_str_eq(rows_of(sql, "id pairs error cosine cosine_min spearman", "evaluation"),
                     "1 NULL NULL NULL NULL NULL \n"
                     "2 3 0.5 0.75 0.5 0.625 \n"
                     "3 1 0.375 0.875 0.8125 NULL \n");
    ck_assert_str_eq(rows_of(sql, "evaluation_id number tokens nll kl top1 error cosine", "evaluation_window"),
                     "1 0 511 1277.5 51.1 383.0 NULL NULL \n"
                     "2 0 NULL NULL NULL NULL 0.25 0.875 \n"
                     "2 1 NULL NULL NULL NULL 0.75 0.5 \n"
                     "2 2 NULL NULL NULL NULL 0.5 0.875 \n"
                     "3 0 NULL NULL NULL NULL 0.375 0.875 \n"
                     "3 1 NULL NULL NULL NULL 0.375 0.875 \n");
    ck_assert_str_eq(rows_of(sql, "run_id role subject evaluation_id delta_kl delta_one_minus_cosine delta_se",
                             "run_evaluation"),
                     "1 'guard' 'gptq' 1 0.5 NULL 0.25 \n"
                     "2 'guard' 'hybrid' 2 NULL 0.0625 0.03125 \n"
                     "2 'test' 'gptq' 3 NULL NULL NULL \n");
    ck_assert_str_eq(rows_of(sql, "run_id subject evaluation_id failure delta_kl delta_one_minus_cosine delta_se",
                             "ablation"),
                     "1 'gptq' 1 NULL 0.75 NULL 0.5 \n"
                     "2 'gptq' 3 NULL NULL -0.75 0.25 \n"
                     "2 'rtn' NULL 'why' NULL NULL NULL \n");
    ck_assert_str_eq(rows_of(sql, "evaluation_id cosine", "encoding"), "2 0.75 \n3 0.875 \n");
    calm_sql_close(sql);
}
END_OF_TEST

/* A changed view of calm is made anew; a user's view stays. */
TEST(views)
{
    const char *path = old_store();
    run_script(path, "DROP VIEW v_choices; CREATE VIEW v_choices AS SELECT 1 AS run; DROP VIEW v_runs;"
                     "CREATE VIEW \"my \"\"best\"\" runs\" AS SELECT max(id) AS run FROM run");
    calm_store *store = sample_open(path, CALM_STORE_WRITE);
    ck_assert_str_eq(sample_text(store, "SELECT algorithm FROM v_choices"), "gptq");
    ck_assert_int_eq(sample_number(store, "SELECT count(*) FROM v_runs"), 1);
    ck_assert_int_eq(sample_number(store, "SELECT run FROM \"my \"\"best\"\" runs\""), 1);
    calm_store_close(store);
}
END_OF_TEST

/* ---- refusals ---- */

/* Checks that the store is refused with these words, and the folder is unchanged: same bytes, no lock, no blobs. */
static void refused(const char *path, const calm_store_how *how, calm_status expected, const char *words)
{
    calm_store *store;
    char *before, *after;
    size_t n_before, n_after;
    ck_ok(calm_read_file(ctx, path, 1 << 24, &before, &n_before));
    ck_fails(calm_store_open(ctx, path, how, &store), expected, words);
    ck_assert_ptr_null(store);
    ck_ok(calm_read_file(ctx, path, 1 << 24, &after, &n_after));
    ck_assert(n_before == n_after && memcmp(before, after, n_before) == 0);
    ck_assert(!calm_path_exists(test_format("%s.lock", path)));
    ck_assert(!calm_path_exists(test_format("%s.blobs", path)));
}

TEST(reading_says_what_to_do)
{
    const char *path = old_store();
    refused(path, NULL, CALM_EUNSUPPORTED,
            test_format("%s: written by an older calm; the next calm quantize with --store %s brings it up to date",
                        path, path));
    ck_assert_int_eq(version_of(path), 1);
    calm_store_close(sample_open(path, CALM_STORE_WRITE));
    calm_store_close(sample_open(path, CALM_STORE_READ));
}
END_OF_TEST

/* Only additions of later versions may be missing: a lost table is not silently replaced by an empty one. */
TEST(damaged_stores_are_refused_unchanged)
{
    static const struct {
        const char *script, *words;
    } rows[] = {
        {"DROP VIEW v_scores; DROP TABLE score", "damaged store: \"score\" is missing or was changed"},
        {"DROP INDEX run_evaluation_by_evaluation", "\"run_evaluation_by_evaluation\" is missing"},
        {"ALTER TABLE model ADD COLUMN colour TEXT", "\"model\" is missing or was changed"},
        {"CREATE TABLE expert (id INTEGER)", "\"expert\" is missing or was changed"},
        {"CREATE TABLE ablation (id INTEGER)", "\"ablation\" is missing or was changed"},
        {"ALTER TABLE evaluation ADD COLUMN colour TEXT", "\"evaluation\" is missing or was changed"},
        {"DROP VIEW v_evaluations; DROP TABLE evaluation_window", "\"evaluation_window\" is missing or was changed"},
        {"PRAGMA user_version = 0", "store version 0, expected 9"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *path = old_store();
        run_script(path, test_format("%s; PRAGMA wal_checkpoint(TRUNCATE)", rows[i].script));
        refused(path, NULL, CALM_EFORMAT, rows[i].words);
        refused(path, &sample_writing, CALM_EFORMAT, rows[i].words);
    }
    const char *path = old_store(), *cut = test_format("%s/cut.db", test_directory());
    char *bytes;
    size_t n;
    ck_ok(calm_read_file(ctx, path, 1 << 24, &bytes, &n));
    ck_ok(calm_write_file(ctx, cut, bytes, n / 2));
    refused(cut, &sample_writing, CALM_EFORMAT, cut);
}
END_OF_TEST

/* ---- the copy ---- */

static void keep_line(void *user, calm_log_level level, const char *line)
{
    if (level == CALM_LOG_WARNING)
        snprintf(user, CALM_MESSAGE_MAX, "%s", line);
}

/* The copy has the store as it was, with what waited in its -wal, under an unused name. */
TEST(a_copy_is_kept)
{
    const char *path = old_store(), *before;
    char line[CALM_MESSAGE_MAX] = "";
    const pid_t pid = fork();
    if (pid == 0) {
        calm_sql *sql;
        if (calm_sql_open(ctx, path, CALM_SQL_WRITE, &sql) == CALM_OK)
            calm_sql_script(ctx, sql, "UPDATE model SET name = 'from the log'");
        kill(getpid(), SIGKILL);
    }
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    ck_assert(calm_path_exists(test_format("%s-wal", path)));
    before = contents(path);
    ck_assert_ptr_nonnull(strstr(before, "from the log"));
    ck_ok(calm_write_file(ctx, test_format("%s.v1.bak", path), "mine", 4));
    ck_ok(calm_make_directories(ctx, test_format("%s.v1.bak.2", path)));
    ck_ok(calm_write_file(ctx, test_format("%s.bak.new", path), "stale", 5));
    ctx->log = keep_line, ctx->log_user = line;
    calm_store_close(sample_open(path, CALM_STORE_WRITE));
    const char *copy = test_format("%s.v1.bak.3", path);
    ck_assert_str_eq(line, test_format("%s: a store of version 1, brought up to version %d; a copy of it is kept: %s",
                                       path, calm_store_version(), copy));
    ck_assert_int_eq(version_of(copy), 1);
    ck_assert_str_eq(contents(copy), before);
    ck_assert_str_eq(contents(path), before);
    char *mine;
    size_t n;
    ck_ok(calm_read_file(ctx, test_format("%s.v1.bak", path), 100, &mine, &n));
    ck_assert_str_eq(mine, "mine");
    ck_assert(!calm_path_exists(test_format("%s.bak.new", path)));
    /* It is a store: migrated once, and not again. */
    calm_store_close(sample_open(copy, CALM_STORE_WRITE));
    ck_assert_int_eq(version_of(test_format("%s.v1.bak", copy)), 1);
    line[0] = '\0';
    calm_store_close(sample_open(path, CALM_STORE_WRITE));
    ck_assert_str_eq(line, "");
    ck_assert(!calm_path_exists(test_format("%s.v1.bak.4", path)));
    ck_assert(!calm_path_exists(test_format("%s.v%d.bak", path, calm_store_version())));
}
END_OF_TEST

TEST(no_copy_no_change)
{
    const char *path = old_store(), *before = contents(path);
    calm_store *store;
    ck_ok(calm_make_directories(ctx, test_format("%s.bak.new", path)));
    ck_fails(
        calm_store_open(ctx, path, &sample_writing, &store), CALM_EIO,
        test_format("%s: a store of version 1 cannot be copied to %s.v1.bak, which is done before it is brought up to "
                    "date: nothing was changed (%s: ",
                    path, path, path));
    ck_assert_int_eq(version_of(path), 1);
    ck_assert_str_eq(contents(path), before);
    ck_assert(!calm_path_exists(test_format("%s.v1.bak", path)));
    ck_assert_int_eq(rmdir(test_format("%s.bak.new", path)), 0);
    calm_store_close(sample_open(path, CALM_STORE_WRITE));
    ck_assert_str_eq(contents(test_format("%s.v1.bak", path)), before);
}
END_OF_TEST

/* ---- when the machine fails on the way ---- */

typedef struct word {
    calm_status status;
    long calls;
    char message[CALM_MESSAGE_MAX];
} word;

/* Opens for writing in a child that is killed at call `at`, or whose calls fail from there on; returns false if it
 * was killed. */
static bool open_with(const char *path, fault wanted, word *said)
{
    int ends[2], status;
    word heard = {CALM_OK, 0, ""};
    ck_assert_int_eq(pipe(ends), 0);
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        calm_store *store;
        fault_plan(wanted);
        heard.status = calm_store_open(ctx, path, &sample_writing, &store);
        calm_store_close(store);
        heard.calls = fault_calls();
        memcpy(heard.message, ctx->message, CALM_MESSAGE_MAX);
        fault_plan((fault){0});
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

/* How many stores were migrated, and how many have a second copy. */
typedef struct tally {
    long migrated, copied_again;
} tally;

/* Checks that the store is old or new and, opened once more, new with every row; each copy is whole, and there is
 * one if the store is new. */
static void check_whole(const char *path, const char *expected, long at, tally *count)
{
    const int64_t version = version_of(path);
    const char *first = test_format("%s.v1.bak", path), *second = test_format("%s.v1.bak.2", path);
    ck_assert_msg(version == 1 || calm_path_exists(first), "call %ld: migrated without a copy", at);
    ck_assert_msg(!calm_path_exists(first) || strcmp(contents(first), expected) == 0, "call %ld: half a copy", at);
    ck_assert_msg(version == 1 || version == calm_store_version(), "call %ld: version %lld", at, (long long)version);
    ck_assert_msg(strcmp(contents(path), expected) == 0, "call %ld: rows differ", at);
    calm_store_close(sample_open(path, CALM_STORE_WRITE));
    ck_assert_msg(strcmp(contents(path), expected) == 0, "call %ld: rows differ after the migration", at);
    ck_assert_int_eq(version_of(first), 1);
    ck_assert_msg(!calm_path_exists(second) || strcmp(contents(second), expected) == 0, "call %ld: half a copy", at);
    ck_assert_int_eq(version_of(path), calm_store_version());
    count->migrated += version != 1;
    count->copied_again += calm_path_exists(second);
}

static const char *copy_of(const char *path)
{
    const char *copy = sample_path();
    ck_ok(calm_copy_file(ctx, path, copy));
    return copy;
}

#ifdef CALM_SANITIZED
#define POINTS 8L
#else
#define POINTS 60L
#endif

TEST(killed_or_refused_at_many_calls)
{
    long copies_refused = 0;
    tally killed = {0}, refused = {0};
    word said;
    const char *original = old_store(), *expected = contents(original), *path = copy_of(original);
    ck_assert(open_with(path, (fault){0}, &said));
    ck_assert_int_eq(said.status, CALM_OK);
    const long calls = said.calls;
    ck_assert_int_gt(calls, 5);
    /* All calls take minutes under sanitizers: this many, evenly spread, with the first and the last. */
    for (long i = 0; i < POINTS; i++) {
        const long at = 1 + i * (calls - 1) / (POINTS - 1);
        path = copy_of(original);
        ck_assert_msg(!open_with(path, (fault){.at = at}, &said), "call %ld was not reached", at);
        check_whole(path, expected, at, &killed);
        path = copy_of(original);
        ck_assert(open_with(path, (fault){.at = at, .error = ENOSPC, .stays = true}, &said));
        ck_assert_msg(said.status == CALM_OK || said.status == CALM_ENOSPC, "call %ld: %s", at, said.message);
        const bool refused_copy = strstr(said.message, "nothing was changed") != NULL;
        ck_assert_msg(!refused_copy || version_of(path) == 1, "call %ld: changed without a copy", at);
        copies_refused += refused_copy;
        check_whole(path, expected, at, &refused);
    }
    ck_assert_int_gt(copies_refused, 1);
    ck_assert_int_gt(killed.migrated, 0);
    ck_assert_int_lt(killed.migrated, POINTS);
    ck_assert_int_gt(killed.copied_again + refused.copied_again, 0);
    ck_assert_int_lt(refused.migrated, POINTS);
}
END_OF_TEST

int main(void)
{
    return run_tests("store_migration",
                     (const TTest *[]){every_row_is_kept, version_2, versions_5_to_7,
                                       figures_of_an_encoder_get_their_own_columns, views, reading_says_what_to_do,
                                       damaged_stores_are_refused_unchanged, a_copy_is_kept, no_copy_no_change,
                                      killed_or_refused_at_many_calls, NULL});
}
