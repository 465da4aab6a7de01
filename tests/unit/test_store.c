/* The store: rows there and back by their keys, rules of the schema, views, and what is refused at opening. */
#include "store/store.h"

#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ptq/base/file.h"
#include "ptq/base/threads.h"
#include "store/sql.h"
#include "tests/support/harness.h"

static const calm_store_how writing = {.mode = CALM_STORE_WRITE, .command = "calm test"};

static const char *fresh_path(void)
{
    return test_format("%s/calm.db", test_directory());
}

static calm_store *open_store(const char *path, calm_store_mode mode)
{
    calm_store *store;
    calm_store_how how = writing;
    how.mode = mode;
    ck_ok(calm_store_open(ctx, path, &how, &store));
    return store;
}

static int64_t number(calm_store *store, const char *sql)
{
    calm_value value;
    ck_ok(calm_store_query_one(ctx, store, sql, NULL, 0, &value, 1));
    return value.integer;
}

static const char *text(calm_store *store, const char *sql)
{
    calm_value value;
    ck_ok(calm_store_query_one(ctx, store, sql, NULL, 0, &value, 1));
    return value.type == CALM_VALUE_TEXT ? value.text : NULL;
}

/* Ids of a small model: one block with two jobs, a calibration, a run. */
typedef struct sample {
    int64_t model, calibration, block, qkv, down, run;
} sample;

static const calm_store_model the_model = {.digest = "m1", .name = "qwen", .path = "/models/qwen",
                                           .architecture = "Qwen3ForCausalLM", .dtype = "bfloat16",
                                           .n_params = 5000000, .n_blocks = 1, .hidden_size = 64,
                                           .vocab_size = 100, .bytes = 10000000};
static const calm_store_calibration the_calibration = {.key = "c1", .text_name = "bundled", .text_digest = "t1",
                                                       .tokens_digest = "t2", .n_windows = 128,
                                                       .window_tokens = 512, .n_tokens = 65536, .seed = -1,
                                                       .score_windows = 8};

static sample fill(calm_store *store)
{
    sample s;
    ck_ok(calm_store_model_id(ctx, store, &the_model, &s.model));
    ck_ok(calm_store_calibration_id(ctx, store, &the_calibration, &s.calibration));
    calm_store_block block = {.model_id = s.model, .number = 0, .name = "model.layers.0", .kind = "decoder"};
    ck_ok(calm_store_block_id(ctx, store, &block, &s.block));
    calm_store_job qkv = {.block_id = s.block, .role = "qkv", .position = 0, .name = "model.layers.0.self_attn.qkv",
                          .sublayer = "attention", .linears = "q k v", .out = 128, .in = 64,
                          .weights_digest = "w1", .input_hook = "model.layers.0.self_attn.qkv.input"};
    calm_store_job down = {.block_id = s.block, .role = "down", .position = 3, .name = "model.layers.0.mlp.down",
                           .sublayer = "mlp", .linears = "down", .out = 64, .in = 192, .weights_digest = "w2"};
    ck_ok(calm_store_job_id(ctx, store, &down, &s.down));
    ck_ok(calm_store_job_id(ctx, store, &qkv, &s.qkv));
    calm_store_run run = {.key = "r1", .model_id = s.model, .calibration_id = s.calibration,
                          .command = "calm quantize --model qwen", .recipe = "{\"bits\":4}", .rule = "default",
                          .metric = "cka_token", .version = "0.1.0", .n_threads = 2};
    ck_ok(calm_store_run_begin(ctx, store, &run, &s.run, NULL));
    return s;
}

static const calm_store_score the_scores[] = {
    {NULL, "cka", 1.25e-5}, {NULL, "cka_token", 2.5e-5}, {NULL, "rel_mse", 0.0031}, {NULL, "log_rel_mse", -5.75},
    {"block", "cka", 3e-6},
};

static calm_store_candidate good_candidate(const sample *s)
{
    return (calm_store_candidate){.key = "k1", .job_id = s->qkv, .calibration_id = s->calibration,
                                  .algorithm = "gptq", .chain = "absmax@1()+gptq@1(order=activation,damp=0.01)",
                                  .scheme = "w4a16_g128", .blob = "b1", .blob_bytes = 4096,
                                  .bits_per_weight = 4.125, .damp = 0.01, .seconds = 0.5, .score_rows = 4096,
                                  .dropped_rows = 8, .scores = the_scores, .n_scores = 5};
}

/* ---- schema ---- */

/* Does the line carry a comment with words? */
static bool commented(const char *line)
{
    const char *dash = strstr(line, "-- ");
    return dash && isalnum((unsigned char)dash[3]);
}

TEST(every_table_and_column_has_a_comment)
{
    static const char *const constraints[] = {"UNIQUE", "PRIMARY", "CHECK", "FOREIGN"};
    char *schema = test_format("%s", calm_store_schema());
    bool inside = false;
    int n_tables = 0, n_columns = 0, n_views = 0;
    for (char *save, *line = strtok_r(schema, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        const char *word = line + strspn(line, " ");
        bool head = strncmp(line, "CREATE TABLE", 12) == 0, view = strncmp(line, "CREATE VIEW", 11) == 0;
        n_tables += head, n_views += view;
        if (head || view)
            ck_assert_msg(commented(line), "no comment: %s", line);
        if (inside && line[0] == ')')
            inside = false;
        bool constraint = false;
        for (size_t i = 0; i < sizeof constraints / sizeof constraints[0]; i++)
            constraint |= strncmp(word, constraints[i], strlen(constraints[i])) == 0;
        if (inside && !constraint) {
            ck_assert_msg(commented(line), "no comment: %s", line);
            n_columns++;
        }
        inside |= head;
    }
    /* The parser above saw what SQLite sees. */
    calm_store *store = open_store(fresh_path(), CALM_STORE_WRITE);
    ck_assert_int_eq(number(store, "SELECT count(*) FROM sqlite_master WHERE type = 'table'"), n_tables);
    ck_assert_int_eq(number(store, "SELECT count(*) FROM sqlite_master WHERE type = 'view'"), n_views);
    ck_assert_int_eq(number(store, "SELECT count(*) FROM sqlite_master m, pragma_table_info(m.name)"
                                   " WHERE m.type = 'table'"), n_columns);
    ck_assert_int_ge(n_views, 4);
    ck_assert_int_eq(number(store, "PRAGMA user_version"), calm_store_version());
    calm_store_close(store);
}
END_OF_TEST

TEST(children_of_every_foreign_key_are_indexed)
{
    calm_store *store = open_store(fresh_path(), CALM_STORE_WRITE);
    /* Without an index on the child's columns, deleting one parent row reads the whole child table. */
    ck_assert_int_eq(number(store, "SELECT count(*) FROM sqlite_master m, pragma_foreign_key_list(m.name) f"
                                   " WHERE m.type = 'table' AND NOT EXISTS (SELECT 1 FROM pragma_index_list(m.name) l,"
                                   " pragma_index_info(l.name) i WHERE i.seqno = 0 AND i.name = f.\"from\")"), 0);
    calm_store_close(store);
}
END_OF_TEST

/* ---- rows by keys ---- */

TEST(same_key_same_id)
{
    const char *path = fresh_path();
    calm_store *store = open_store(path, CALM_STORE_WRITE);
    sample a = fill(store);
    calm_store_close(store);
    store = open_store(path, CALM_STORE_WRITE);
    sample b = fill(store);
    ck_assert_int_eq(memcmp(&a, &b, sizeof a), 0);
    calm_store_model moved = the_model;
    int64_t id;
    moved.path = "/elsewhere";
    ck_ok(calm_store_model_id(ctx, store, &moved, &id));
    ck_assert_int_eq(id, a.model);
    ck_assert_str_eq(text(store, "SELECT path FROM model"), "/elsewhere");
    ck_assert_int_eq(number(store, "SELECT count(*) FROM model"), 1);
    ck_assert_int_eq(number(store, "SELECT seed IS NULL FROM calibration"), 1);
    calm_store_close(store);
}
END_OF_TEST

TEST(candidate_round_trip)
{
    calm_store *store = open_store(fresh_path(), CALM_STORE_WRITE);
    sample s = fill(store);
    calm_store_candidate put = good_candidate(&s), found;
    int64_t id, again;
    ck_ok(calm_store_candidate_find(ctx, store, "k1", &found, &id));
    ck_assert_int_eq(id, 0);
    ck_ok(calm_store_candidate_put(ctx, store, &put, &id));
    ck_ok(calm_store_candidate_find(ctx, store, "k1", &found, &again));
    ck_assert_int_eq(again, id);
    ck_assert_str_eq(found.key, put.key);
    ck_assert_str_eq(found.algorithm, put.algorithm);
    ck_assert_str_eq(found.chain, put.chain);
    ck_assert_str_eq(found.scheme, put.scheme);
    ck_assert_str_eq(found.blob, put.blob);
    ck_assert_ptr_null(found.failure);
    ck_assert_int_eq(found.job_id, put.job_id);
    ck_assert_int_eq(found.calibration_id, put.calibration_id);
    ck_assert_int_eq(found.blob_bytes, put.blob_bytes);
    ck_assert_int_eq(found.score_rows, put.score_rows);
    ck_assert_int_eq(found.dropped_rows, put.dropped_rows);
    ck_assert(found.bits_per_weight == 4.125 && found.damp == 0.01 && found.seconds == 0.5);
    ck_assert_uint_eq(found.n_scores, 5);
    for (size_t i = 0; i < 5; i++) {
        bool seen = false;
        for (size_t k = 0; k < 5; k++)
            seen |= strcmp(found.scores[i].metric, put.scores[k].metric) == 0 &&
                    strcmp(found.scores[i].unit, put.scores[k].unit ? put.scores[k].unit : "job") == 0 &&
                    found.scores[i].value == put.scores[k].value;
        ck_assert_msg(seen, "%s", found.scores[i].metric);
    }
    calm_store_close(store);
}
END_OF_TEST

TEST(candidate_replaced_keeps_its_id)
{
    calm_store *store = open_store(fresh_path(), CALM_STORE_WRITE);
    sample s = fill(store);
    calm_store_candidate put = good_candidate(&s), found;
    calm_store_score probe = {NULL, "probe_kl", INFINITY};
    int64_t id, again;
    ck_ok(calm_store_candidate_put(ctx, store, &put, &id));
    ck_ok(calm_store_run_candidate(ctx, store, s.run, id));
    ck_ok(calm_store_run_candidate(ctx, store, s.run, id));
    ck_ok(calm_store_scores_add(ctx, store, id, &probe, 1));
    put.failure = "no positive definite Gram matrix", put.blob = NULL, put.n_scores = 0;
    put.bits_per_weight = NAN;
    ck_ok(calm_store_candidate_put(ctx, store, &put, &again));
    ck_assert_int_eq(again, id);
    ck_ok(calm_store_candidate_find(ctx, store, "k1", &found, &again));
    ck_assert_str_eq(found.failure, put.failure);
    ck_assert_ptr_null(found.blob);
    ck_assert(isnan(found.bits_per_weight));
    ck_assert_uint_eq(found.n_scores, 0);
    ck_ok(calm_store_scores_add(ctx, store, id, &probe, 1));
    probe.value = -INFINITY;
    ck_ok(calm_store_scores_add(ctx, store, id, &probe, 1));
    ck_ok(calm_store_candidate_find(ctx, store, "k1", &found, &again));
    ck_assert_uint_eq(found.n_scores, 1);
    ck_assert(found.scores[0].value == -INFINITY);
    calm_store_close(store);
}
END_OF_TEST

TEST(rules_of_the_schema_hold)
{
    calm_store *store = open_store(fresh_path(), CALM_STORE_WRITE);
    sample s = fill(store);
    calm_store_candidate c = good_candidate(&s);
    int64_t id;
    c.job_id = 999;
    ck_fails(calm_store_candidate_put(ctx, store, &c, &id), CALM_EARG, "FOREIGN KEY");
    c = good_candidate(&s), c.blob = NULL;
    ck_fails(calm_store_candidate_put(ctx, store, &c, &id), CALM_EARG, "CHECK");
    c = good_candidate(&s), c.scheme = NULL;
    ck_fails(calm_store_candidate_put(ctx, store, &c, &id), CALM_EARG, "candidate.scheme");
    calm_store_score wrong[] = {{NULL, "cka", 1}, {NULL, "cosine", NAN}};
    c = good_candidate(&s), c.scores = wrong, c.n_scores = 2;
    ck_fails(calm_store_candidate_put(ctx, store, &c, &id), CALM_ENUMERIC, "cosine");
    /* None of them left anything. */
    ck_assert_int_eq(number(store, "SELECT (SELECT count(*) FROM candidate) + (SELECT count(*) FROM score)"), 0);
    ck_assert_int_eq(number(store, "SELECT count(*) FROM algorithm"), 0);
    calm_store_choice choice = {.run_id = s.run, .job_id = 999, .unit = "u", .reason = "r"};
    ck_fails(calm_store_choice_put(ctx, store, &choice), CALM_EARG, "FOREIGN KEY");
    calm_store_artifact artifact = {.run_id = 999, .path = "x", .role = "config", .bytes = 1, .sha256 = "s"};
    ck_fails(calm_store_artifact_put(ctx, store, &artifact), CALM_EARG, "FOREIGN KEY");
    calm_store_outcome outcome = {.status = "finished"};
    ck_fails(calm_store_run_end(ctx, store, 999, &outcome), CALM_EARG, "999");
    outcome.status = "asleep";
    ck_fails(calm_store_run_end(ctx, store, s.run, &outcome), CALM_EARG, "CHECK");
    calm_store_run run = {.key = "r2", .model_id = s.model, .recipe = "{"};
    ck_fails(calm_store_run_begin(ctx, store, &run, &id, NULL), CALM_EARG, "CHECK");
    calm_store_close(store);
}
END_OF_TEST

TEST(transactions_nest_and_roll_back)
{
    calm_store *store = open_store(fresh_path(), CALM_STORE_WRITE);
    sample s = fill(store);
    calm_store_candidate c = good_candidate(&s);
    int64_t id;
    ck_ok(calm_store_begin(ctx, store));
    ck_ok(calm_store_candidate_put(ctx, store, &c, &id));
    calm_store_rollback(store);
    ck_assert_int_eq(number(store, "SELECT count(*) FROM candidate"), 0);
    ck_ok(calm_store_begin(ctx, store));
    ck_ok(calm_store_candidate_put(ctx, store, &c, &id));
    c.key = "k2", c.job_id = 999;
    ck_fails(calm_store_candidate_put(ctx, store, &c, &id), CALM_EARG, "FOREIGN");
    ck_ok(calm_store_commit(ctx, store));
    ck_assert_int_eq(number(store, "SELECT count(*) FROM candidate"), 1);
    calm_store_rollback(store);
    ck_assert_int_eq(number(store, "SELECT count(*) FROM score"), 5);
    calm_store_close(store);
}
END_OF_TEST

/* ---- runs ---- */

TEST(an_unfinished_run_goes_on)
{
    const char *path = fresh_path();
    calm_store *store = open_store(path, CALM_STORE_WRITE);
    sample s = fill(store);
    calm_store_close(store);
    store = open_store(path, CALM_STORE_WRITE);
    ck_assert_str_eq(text(store, "SELECT status FROM run"), "interrupted");
    calm_store_run run = {.key = "r1", .model_id = s.model, .calibration_id = s.calibration};
    int64_t id;
    bool resumed;
    ck_ok(calm_store_run_begin(ctx, store, &run, &id, &resumed));
    ck_assert(resumed && id == s.run);
    ck_assert_int_eq(number(store, "SELECT attempts FROM run"), 2);
    calm_store_outcome outcome = {.status = "finished", .result = "hybrid", .reason = "no uniform run is better",
                                  .bits_per_weight = 4.125, .bytes_before = 1000, .bytes_after = 300};
    ck_ok(calm_store_run_end(ctx, store, id, &outcome));
    ck_ok(calm_store_run_begin(ctx, store, &run, &id, &resumed));
    ck_assert(!resumed && id != s.run);
    ck_assert_str_eq(text(store, "SELECT recipe FROM run ORDER BY id DESC"), "{}");
    calm_store_close(store);
}
END_OF_TEST

/* ---- activations, evaluations, views ---- */

static void put_activation(calm_store *store, const sample *s, int64_t block, const char *hook, double peak)
{
    static const uint64_t bins[] = {0, 0, 5, 0, 7, 0};
    calm_store_peak peaks[] = {{-peak, 3, 0, 17, "\nthe"}, {peak / 2, 1, 4, 5, NULL}};
    calm_store_activation a = {.model_id = s->model, .calibration_id = s->calibration, .hook = hook,
                               .point = "qkv_in", .block = block, .channels = 64, .count = 12, .n_tokens = 3,
                               .max_abs = peak, .q50 = 0.5, .crest_median = 3.04, .ratio_std = NAN,
                               .histogram = bins, .n_bins = 6, .peaks = peaks, .n_peaks = 2};
    ck_ok(calm_store_activation_put(ctx, store, &a));
}

TEST(activations_round_trip)
{
    calm_store *store = open_store(fresh_path(), CALM_STORE_WRITE);
    sample s = fill(store);
    bool exists;
    ck_ok(calm_store_activation_exists(ctx, store, s.model, s.calibration, NULL, &exists));
    ck_assert(!exists);
    put_activation(store, &s, -1, "embed", 2);
    put_activation(store, &s, 0, "h0", 4);
    put_activation(store, &s, 1, "h1", 50);
    put_activation(store, &s, 1, "h1", 60);    /* replaced, with its peaks */
    ck_ok(calm_store_activation_exists(ctx, store, s.model, s.calibration, "h1", &exists));
    ck_assert(exists);
    ck_ok(calm_store_activation_exists(ctx, store, s.model, s.calibration, "h2", &exists));
    ck_assert(!exists);
    ck_ok(calm_store_activation_exists(ctx, store, s.model, s.calibration, NULL, &exists));
    ck_assert(exists);
    ck_assert_int_eq(number(store, "SELECT count(*) FROM activation_peak"), 6);
    ck_assert_str_eq(text(store, "SELECT histogram FROM activation WHERE hook = 'h1'"), "[5,0,7]");
    ck_assert_int_eq(number(store, "SELECT histogram_first FROM activation WHERE hook = 'h1'"), 2);
    ck_assert_int_eq(number(store, "SELECT count(*) FROM activation WHERE block IS NULL AND ratio_std IS NULL"), 1);
    ck_assert_str_eq(text(store, "SELECT max || ' ' || channel || ' ' || token || ' ' || growth || ' ' || crest ||"
                                 " ' ' || max_over_median FROM v_activations WHERE hook = 'h1'"),
                     "-60.00 17 \\nthe 15.0 3.0 120.0");
    calm_store_close(store);
}
END_OF_TEST

TEST(evaluations_round_trip)
{
    calm_store *store = open_store(fresh_path(), CALM_STORE_WRITE);
    sample s = fill(store);
    calm_store_window windows[] = {{511, 1700.25, 5.5, 400}, {511, 1800.1, 0.1 + 0.2, 401}, {511, 1, NAN, NAN}};
    calm_store_evaluation put = {.key = "e1", .model_id = s.model, .subject = "gptq", .text_name = "valid",
                                 .text_digest = "t1", .window_tokens = 512, .tokens = 1022, .nll = 3.4, .ppl = 29.9,
                                 .kl = 0.011, .top1 = NAN, .windows = windows, .n_windows = 3}, found;
    int64_t id, again;
    ck_ok(calm_store_evaluation_find(ctx, store, "e1", &found, &id));
    ck_assert_int_eq(id, 0);
    ck_ok(calm_store_evaluation_put(ctx, store, &put, &id));
    ck_ok(calm_store_evaluation_put(ctx, store, &put, &id));
    ck_ok(calm_store_evaluation_find(ctx, store, "e1", &found, &again));
    ck_assert_int_eq(again, id);
    ck_assert_str_eq(found.subject, "gptq");
    ck_assert_str_eq(found.text_digest, "t1");
    ck_assert(found.tokens == 1022 && found.nll == 3.4 && found.ppl == 29.9 && found.kl == 0.011);
    ck_assert(isnan(found.top1));
    ck_assert_uint_eq(found.n_windows, 3);
    ck_assert(found.windows[1].kl == 0.1 + 0.2 && found.windows[1].top1 == 401 && isnan(found.windows[2].kl));
    calm_store_verdict verdict = {.run_id = s.run, .evaluation_id = id, .role = "guard", .delta_kl = 0.002,
                                  .delta_se = 0.0005};
    ck_ok(calm_store_verdict_put(ctx, store, &verdict));
    ck_ok(calm_store_verdict_put(ctx, store, &verdict));
    ck_assert_str_eq(text(store, "SELECT subject || ' ' || kl || ' ' || delta_kl FROM v_evaluations"),
                     "gptq 0.01100 +0.00200");
    calm_store_close(store);
}
END_OF_TEST

TEST(views_read_like_a_report)
{
    calm_store *store = open_store(fresh_path(), CALM_STORE_WRITE);
    sample s = fill(store);
    calm_store_candidate c = good_candidate(&s);
    int64_t id;
    ck_ok(calm_store_candidate_put(ctx, store, &c, &id));
    ck_ok(calm_store_run_candidate(ctx, store, s.run, id));
    put_activation(store, &s, 0, "model.layers.0.self_attn.qkv.input", 4);
    calm_store_choice qkv = {.run_id = s.run, .job_id = s.qkv, .candidate_id = id, .unit = "L0.qkv",
                             .reason = "least log_rel_mse of 3", .advice = "plain", .disagrees = true};
    calm_store_choice down = {.run_id = s.run, .job_id = s.down, .unit = "L0.down", .reason = "pinned"};
    ck_ok(calm_store_choice_put(ctx, store, &down));
    ck_ok(calm_store_choice_put(ctx, store, &qkv));
    ck_ok(calm_store_choice_put(ctx, store, &qkv));
    ck_assert_str_eq(text(store, "SELECT unit || '|' || algorithm || '|' || scheme || '|' || one_minus_cka || '|' ||"
                                 " one_minus_cka_token || '|' || rel_mse || '|' || log_rel_mse || '|' || bits || '|' ||"
                                 " activation_max || '|' || activation_at || '|' || crest || '|' || advice || '|' ||"
                                 " reason FROM v_choices"),
                     "L0.qkv|gptq|w4a16_g128|1.25e-05|2.50e-05|3.10e-03|-5.750|4.125|-4.00|channel 17, token \"\\nthe\""
                     " (window 3, position 0)|3.0|plain (differs)|least log_rel_mse of 3");
    /* A job that stays float has a row without numbers. */
    ck_assert_int_eq(number(store, "SELECT count(*) FROM v_choices WHERE algorithm = 'float' AND one_minus_cka IS NULL"
                                   " AND activation_max IS NULL AND activation_at IS NULL AND crest IS NULL"), 1);
    ck_assert_int_eq(number(store, "SELECT count(*) FROM v_scores"), 5);
    ck_assert_str_eq(text(store, "SELECT job || ' ' || chosen FROM v_candidates WHERE run = 1"), "qkv yes");
    calm_store_artifact file = {.run_id = s.run, .path = "out/model.safetensors", .role = "weights", .bytes = 5,
                                .sha256 = "s"};
    ck_ok(calm_store_artifact_put(ctx, store, &file));
    ck_ok(calm_store_artifact_put(ctx, store, &file));
    calm_store_outcome outcome = {.status = "finished", .result = "hybrid", .bits_per_weight = NAN};
    ck_ok(calm_store_run_end(ctx, store, s.run, &outcome));
    ck_assert_str_eq(text(store, "SELECT model || ' ' || status || ' ' || result || ' ' || candidates || ' ' || choices"
                                 " FROM v_runs WHERE bits_per_weight IS NULL AND ppl_result IS NULL"),
                     "qwen finished hybrid 1 2");
    calm_store_close(store);
}
END_OF_TEST

/* ---- opening ---- */

static void write_bytes(const char *path, const void *bytes, size_t n_bytes)
{
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, n_bytes, file), n_bytes);
    ck_assert_int_eq(fclose(file), 0);
}

/* Refused in both modes with these words, and the folder is as before: no lock file, no blobs, same bytes. */
static void refused(const char *path, calm_status expected, const char *words)
{
    calm_store *store;
    char *before, *after;
    size_t n_before, n_after;
    ck_ok(calm_read_file(ctx, path, 1 << 24, &before, &n_before));
    ck_fails(calm_store_open(ctx, path, NULL, &store), expected, words);
    ck_assert_ptr_null(store);
    ck_fails(calm_store_open(ctx, path, &writing, &store), expected, words);
    ck_assert_ptr_null(store);
    ck_ok(calm_read_file(ctx, path, 1 << 24, &after, &n_after));
    ck_assert(n_before == n_after && memcmp(before, after, n_before) == 0);
    ck_assert(!calm_path_exists(test_format("%s.lock", path)));
    ck_assert(!calm_path_exists(test_format("%s.blobs", path)));
}

/* A database at `path` made by this script. */
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
    make_database(path, "PRAGMA user_version = 7; CREATE TABLE novelty (a)");
    refused(path, CALM_EUNSUPPORTED, "store version 7, this program knows versions up to 1");
    path = test_format("%s/altered.db", folder);
    make_database(path, calm_store_schema());
    make_database(path, "DROP VIEW v_choices; CREATE VIEW v_choices AS SELECT 1 AS run");
    refused(path, CALM_EFORMAT, "\"v_choices\" is missing or was changed");
}
END_OF_TEST

TEST(truncated_store_is_refused)
{
    const char *path = fresh_path();
    calm_store *store = open_store(path, CALM_STORE_WRITE);
    fill(store);
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
    const char *path = fresh_path();
    calm_store *store;
    ck_fails(calm_store_open(ctx, path, NULL, &store), CALM_ENOTFOUND, path);
    write_bytes(path, "", 0);
    ck_fails(calm_store_open(ctx, path, NULL, &store), CALM_ENOTFOUND, path);
    /* Left over from a store that was deleted and from one that was being made. */
    write_bytes(test_format("%s-wal", path), "stale", 5);
    write_bytes(test_format("%s.new", path), "stale", 5);
    store = open_store(path, CALM_STORE_WRITE);
    fill(store);
    calm_store_close(store);
    ck_assert(!calm_path_exists(test_format("%s.new", path)));
    store = open_store(path, CALM_STORE_READ);
    ck_assert_int_eq(number(store, "SELECT count(*) FROM job"), 2);
    calm_store_close(store);
    ck_fails(calm_store_open(ctx, test_format("%s/none/calm.db", test_directory()), &writing, &store),
             CALM_ENOTFOUND, "none/calm.db");
}
END_OF_TEST

TEST(reading_writes_nothing)
{
    const char *path = fresh_path();
    calm_store *store = open_store(path, CALM_STORE_WRITE);
    fill(store);
    calm_store_close(store);
    ck_assert_int_eq(unlink(test_format("%s.lock", path)), 0);
    store = open_store(path, CALM_STORE_READ);
    int64_t id;
    ck_fails(calm_store_model_id(ctx, store, &the_model, &id), CALM_EIO, "readonly");
    ck_assert_str_eq(text(store, "SELECT status FROM run"), "running");
    calm_value row[2];
    ck_fails(calm_store_query_one(ctx, store, "SELECT 1", NULL, 0, row, 2), CALM_EARG, "1 columns");
    ck_fails(calm_store_query_one(ctx, store, "SELECT 1 WHERE 0", NULL, 0, row, 1), CALM_ENOTFOUND, path);
    ck_fails(calm_store_query_one(ctx, store, "DELETE FROM run RETURNING id", NULL, 0, row, 1), CALM_EARG, "reading");
    calm_store_close(store);
    ck_assert(!calm_path_exists(test_format("%s.lock", path)));
}
END_OF_TEST

/* ---- two processes ---- */

static void keep_line(void *user, calm_log_level level, const char *line)
{
    (void)level;
    snprintf(user, CALM_MESSAGE_MAX, "%s", line);
}

/* A child that holds the store, says so through a pipe, writes and leaves after `seconds`. */
static pid_t start_holder(const char *path, double seconds, int *ready)
{
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        calm_store *store;
        calm_store_how how = {.mode = CALM_STORE_WRITE, .command = "calm quantize --model other"};
        if (calm_store_open(ctx, path, &how, &store) != CALM_OK || write(ends[1], "x", 1) != 1)
            _exit(1);
        usleep((useconds_t)(seconds * 1e6));
        int64_t id;
        calm_status status = calm_store_model_id(ctx, store, &the_model, &id);
        calm_store_close(store);
        _exit(status != CALM_OK);
    }
    close(ends[1]);
    *ready = ends[0];
    return pid;
}

TEST(a_second_writer_waits_or_is_told_who_writes)
{
    const char *path = fresh_path();
    char line[CALM_MESSAGE_MAX] = "", byte;
    int ready, status;
    calm_store *store, *reader;
    calm_store_how how = writing;
    pid_t pid = start_holder(path, 0.5, &ready);
    ck_assert_int_eq(read(ready, &byte, 1), 1);
    ck_fails(calm_store_open(ctx, path, &how, &store), CALM_EBUSY,
             test_format("process %ld (calm quantize --model other)", (long)pid));
    ck_ok(calm_store_open(ctx, path, NULL, &reader));
    ck_assert_int_eq(number(reader, "SELECT count(*) FROM model"), 0);
    ctx->log = keep_line, ctx->log_user = line;
    how.wait_seconds = -1;
    ck_ok(calm_store_open(ctx, path, &how, &store));
    ck_assert_msg(strstr(line, "waiting for process"), "%s", line);
    ck_assert_int_eq(number(store, "SELECT count(*) FROM model"), 1);
    ck_assert_int_eq(number(reader, "SELECT count(*) FROM model"), 1);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    /* Also two in one process. */
    calm_store *second;
    how.wait_seconds = 0;
    ck_fails(calm_store_open(ctx, path, &how, &second), CALM_EBUSY, "calm test");
    sample s = fill(store);
    ck_assert_int_gt(s.run, 0);
    ck_assert_int_eq(number(reader, "SELECT count(*) FROM run"), 1);
    calm_store_close(reader);
    calm_store_close(store);
    close(ready);
}
END_OF_TEST

TEST(a_killed_writer_holds_nothing)
{
    const char *path = fresh_path();
    char byte;
    int ready;
    pid_t pid = start_holder(path, 30, &ready);
    ck_assert_int_eq(read(ready, &byte, 1), 1);
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    calm_store *store = open_store(path, CALM_STORE_WRITE);
    fill(store);
    calm_store_close(store);
    close(ready);
}
END_OF_TEST

int main(void)
{
    return run_tests("store", (const TTest *[]){
        every_table_and_column_has_a_comment, children_of_every_foreign_key_are_indexed, same_key_same_id,
        candidate_round_trip, candidate_replaced_keeps_its_id, rules_of_the_schema_hold,
        transactions_nest_and_roll_back, an_unfinished_run_goes_on, activations_round_trip, evaluations_round_trip,
        views_read_like_a_report, foreign_and_newer_files_are_refused, truncated_store_is_refused,
        empty_files_become_stores, reading_writes_nothing, a_second_writer_waits_or_is_told_who_writes,
        a_killed_writer_holds_nothing, NULL});
}
