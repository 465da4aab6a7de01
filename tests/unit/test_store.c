/* The store: rows written and read by their keys, rules of the schema, views. */
#include "store/store.h"

#include <ctype.h>
#include <stdio.h>

#include "store/sql.h"
#include "tests/support/harness.h"
#include "tests/support/store_sample.h"

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

/* Tells whether the line has a comment with words. */
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
    /* The parser above found the tables that SQLite has. */
    calm_store *store = sample_open(sample_path(), CALM_STORE_WRITE);
    ck_assert_int_eq(sample_number(store, "SELECT count(*) FROM sqlite_master WHERE type = 'table'"), n_tables);
    ck_assert_int_eq(sample_number(store, "SELECT count(*) FROM sqlite_master WHERE type = 'view'"), n_views);
    ck_assert_int_eq(sample_number(store, "SELECT count(*) FROM sqlite_master m, pragma_table_info(m.name)"
                                   " WHERE m.type = 'table'"), n_columns);
    ck_assert_int_ge(n_views, 4);
    ck_assert_int_eq(sample_number(store, "PRAGMA user_version"), calm_store_version());
    calm_store_close(store);
}
END_OF_TEST

TEST(children_of_every_foreign_key_are_indexed)
{
    calm_store *store = sample_open(sample_path(), CALM_STORE_WRITE);
    /* Without an index on the child's columns, deleting a parent row reads the whole child table. */
    ck_assert_int_eq(sample_number(store, "SELECT count(*) FROM sqlite_master m, pragma_foreign_key_list(m.name) f"
                                   " WHERE m.type = 'table' AND NOT EXISTS (SELECT 1 FROM pragma_index_list(m.name) l,"
                                   " pragma_index_info(l.name) i WHERE i.seqno = 0 AND i.name = f.\"from\")"), 0);
    calm_store_close(store);
}
END_OF_TEST

/* ---- rows by keys ---- */

TEST(same_key_same_id)
{
    const char *path = sample_path();
    calm_store *store = sample_open(path, CALM_STORE_WRITE);
    sample a = sample_fill(store);
    calm_store_close(store);
    store = sample_open(path, CALM_STORE_WRITE);
    sample b = sample_fill(store);
    ck_assert_int_eq(memcmp(&a, &b, sizeof a), 0);
    calm_store_model moved = sample_model;
    int64_t id;
    moved.path = "/elsewhere";
    ck_ok(calm_store_model_id(ctx, store, &moved, &id));
    ck_assert_int_eq(id, a.model);
    ck_assert_str_eq(sample_text(store, "SELECT path FROM model"), "/elsewhere");
    ck_assert_int_eq(sample_number(store, "SELECT count(*) FROM model"), 1);
    ck_assert_int_eq(sample_number(store, "SELECT seed IS NULL FROM calibration"), 1);
    calm_store_close(store);
}
END_OF_TEST

TEST(candidate_round_trip)
{
    calm_store *store = sample_open(sample_path(), CALM_STORE_WRITE);
    sample s = sample_fill(store);
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
    calm_store *store = sample_open(sample_path(), CALM_STORE_WRITE);
    sample s = sample_fill(store);
    calm_store_candidate put = good_candidate(&s), found;
    calm_store_score probe = {NULL, "probe_kl", INFINITY};
    int64_t id, again;
    ck_ok(calm_store_candidate_put(ctx, store, &put, &id));
    ck_ok(calm_store_run_candidate(ctx, store, s.run, id));
    ck_ok(calm_store_run_candidate(ctx, store, s.run, id));
    const calm_store_run other = {.key = "r2", .model_id = s.model};
    int64_t run;
    ck_ok(calm_store_run_begin(ctx, store, &other, &run, NULL));
    for (int twice = 0; twice < 2; twice++)
        ck_ok(calm_store_run_pool(ctx, store, run, s.run));
    ck_assert_int_eq(sample_number(store, "SELECT count(*) FROM run_candidate WHERE run_id = 2"), 1);
    ck_fails(calm_store_run_pool(ctx, store, 99, s.run), CALM_EARG, "FOREIGN KEY");
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
    calm_store *store = sample_open(sample_path(), CALM_STORE_WRITE);
    sample s = sample_fill(store);
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
    /* None of the refused rows left anything. */
    ck_assert_int_eq(sample_number(store, "SELECT (SELECT count(*) FROM candidate) + (SELECT count(*) FROM score)"), 0);
    ck_assert_int_eq(sample_number(store, "SELECT count(*) FROM algorithm"), 0);
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

static calm_status put_for_no_run(calm_store *store, int64_t candidate)
{
    CALM_SCOPED_TRANSACTION(ctx, store);
    CALM_TRY(calm_store_run_candidate(ctx, store, 999, candidate));
    return calm_store_commit(ctx, store);
}

/* A step fails in the inner of two transactions. */
static calm_status put_and_fail(calm_store *store, const calm_store_candidate *c)
{
    int64_t id;
    CALM_SCOPED_TRANSACTION(ctx, store);
    CALM_TRY(calm_store_candidate_put(ctx, store, c, &id));
    CALM_TRY(put_for_no_run(store, id));
    return calm_store_commit(ctx, store);
}

TEST(transactions_nest_and_roll_back)
{
    calm_store *store = sample_open(sample_path(), CALM_STORE_WRITE);
    sample s = sample_fill(store);
    calm_store_candidate c = good_candidate(&s);
    int64_t id;
    ck_fails(put_and_fail(store, &c), CALM_EARG, "FOREIGN");
    ck_assert_int_eq(sample_number(store, "SELECT count(*) FROM candidate"), 0);
    /* Nothing is left open: another connection sees what comes next. */
    calm_store *reader = sample_open(calm_store_path(store), CALM_STORE_READ);
    ck_ok(calm_store_environment_put(ctx, store, s.run, "libc", "2.36"));
    ck_assert_int_eq(sample_number(reader, "SELECT count(*) FROM environment"), 1);
    calm_store_close(reader);
    ck_ok(calm_store_begin(ctx, store));
    ck_ok(calm_store_candidate_put(ctx, store, &c, &id));
    c.key = "k2", c.job_id = 999;
    ck_fails(calm_store_candidate_put(ctx, store, &c, &id), CALM_EARG, "FOREIGN");
    ck_ok(calm_store_commit(ctx, store));
    ck_assert_int_eq(sample_number(store, "SELECT count(*) FROM candidate"), 1);
    ck_assert_int_eq(sample_number(store, "SELECT count(*) FROM score"), 5);
    calm_store_close(store);
}
END_OF_TEST

/* ---- runs ---- */

TEST(an_unfinished_run_goes_on)
{
    const char *path = sample_path();
    calm_store *store = sample_open(path, CALM_STORE_WRITE);
    sample s = sample_fill(store);
    calm_store_close(store);
    store = sample_open(path, CALM_STORE_WRITE);
    ck_assert_str_eq(sample_text(store, "SELECT status FROM run"), "interrupted");
    calm_store_run run = {.key = "r1", .model_id = s.model, .calibration_id = s.calibration};
    int64_t id;
    bool resumed;
    ck_ok(calm_store_run_begin(ctx, store, &run, &id, &resumed));
    ck_assert(resumed && id == s.run);
    ck_assert_int_eq(sample_number(store, "SELECT attempts FROM run"), 2);
    calm_store_outcome outcome = {.status = "finished", .result = "hybrid", .reason = "no uniform run is better",
                                  .bits_per_weight = 4.125, .bytes_before = 1000, .bytes_after = 300};
    ck_ok(calm_store_run_end(ctx, store, id, &outcome));
    ck_ok(calm_store_run_begin(ctx, store, &run, &id, &resumed));
    ck_assert(!resumed && id != s.run);
    ck_assert_str_eq(sample_text(store, "SELECT recipe FROM run ORDER BY id DESC"), "{}");
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
    calm_store *store = sample_open(sample_path(), CALM_STORE_WRITE);
    sample s = sample_fill(store);
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
    ck_assert_int_eq(sample_number(store, "SELECT count(*) FROM activation_peak"), 6);
    ck_assert_str_eq(sample_text(store, "SELECT histogram FROM activation WHERE hook = 'h1'"), "[5,0,7]");
    ck_assert_int_eq(sample_number(store, "SELECT histogram_first FROM activation WHERE hook = 'h1'"), 2);
    ck_assert_int_eq(sample_number(store, "SELECT count(*) FROM activation WHERE block IS NULL AND ratio_std IS NULL"),
                     1);
    ck_assert_str_eq(sample_text(store,
                                 "SELECT max || ' ' || channel || ' ' || token || ' ' || growth || ' ' || crest ||"
                                 " ' ' || max_over_median FROM v_activations WHERE hook = 'h1'"),
                     "-60.00 17 \\nthe 15.0 3.0 120.0");
    calm_store_close(store);
}
END_OF_TEST

TEST(evaluations_round_trip)
{
    calm_store *store = sample_open(sample_path(), CALM_STORE_WRITE);
    sample s = sample_fill(store);
    calm_store_window windows[] = {
        {.tokens = 511, .nll = 1700.25, .kl = 5.5, .top1 = 400},
        {.tokens = 511, .nll = 1800.1, .kl = 0.1 + 0.2, .top1 = 401},
        {.tokens = 511, .nll = 1, .kl = NAN, .top1 = NAN}};
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
    calm_store_verdict verdict = {.run_id = s.run, .evaluation_id = id, .role = "guard", .delta = 0.002,
                                  .delta_se = 0.0005};
    ck_ok(calm_store_verdict_put(ctx, store, &verdict));
    ck_ok(calm_store_verdict_put(ctx, store, &verdict));
    ck_assert_str_eq(sample_text(store, "SELECT subject || ' ' || kl || ' ' || delta_kl FROM v_evaluations"),
                     "gptq 0.01100 +0.00200");
    calm_store_close(store);
}
END_OF_TEST

/* Figures of encoders have separate columns; those of predictions are NULL, in views too. */
TEST(embeddings_round_trip)
{
    calm_store *store = sample_open(sample_path(), CALM_STORE_WRITE);
    sample s = sample_fill(store);
    calm_store_window windows[] = {{.error = 0.25, .cosine = 0.9}, {.error = 0.1 + 0.2, .cosine = 0.7}};
    calm_store_evaluation put = {.key = "e1", .model_id = s.model, .subject = "gptq", .text_name = "valid",
                                 .window_tokens = 128, .kind = CALM_STORE_EMBEDDINGS, .pairs = 1, .error = 0.275,
                                 .cosine = 0.8, .cosine_min = 0.7, .spearman = NAN, .windows = windows,
                                 .n_windows = 2}, found;
    int64_t id, again;
    ck_ok(calm_store_evaluation_put(ctx, store, &put, &id));
    ck_ok(calm_store_evaluation_find(ctx, store, "e1", &found, &again));
    ck_assert(again == id && found.kind == CALM_STORE_EMBEDDINGS && found.pairs == 1 && found.error == 0.275);
    ck_assert(found.cosine == 0.8 && found.cosine_min == 0.7 && isnan(found.spearman) && found.n_windows == 2);
    ck_assert(found.windows[1].error == 0.1 + 0.2 && found.windows[1].cosine == 0.7);
    const calm_store_verdict verdict = {.run_id = s.run, .evaluation_id = id, .role = "guard", .delta = 0.002,
                                        .delta_se = 0.0005};
    ck_ok(calm_store_verdict_put(ctx, store, &verdict));
    const calm_store_ablation ablation = {.run_id = s.run, .subject = "gptq", .kind = "uniform", .evaluation_id = id,
                                          .delta = -0.5, .delta_se = 0.25};
    ck_ok(calm_store_ablation_put(ctx, store, &ablation));
    static const char none[] = "SELECT count(*) FROM evaluation e, evaluation_window w, run_evaluation v, ablation a"
                               " WHERE coalesce(e.tokens, e.nll, e.ppl, e.kl, e.top1, w.tokens, w.nll, w.kl, w.top1,"
                               " v.delta_kl, a.delta_kl) IS NULL";
    ck_assert_int_eq(sample_number(store, none), 2);
    ck_assert_int_eq(sample_number(store, "SELECT count(*) FROM v_evaluations"), 0);
    ck_assert_str_eq(sample_text(store, "SELECT subject || ' ' || cosine || ' ' || cosine_min || ' ' || error || ' ' ||"
                                        " delta_one_minus_cosine || ' ' || sentences FROM v_encodings"),
                     "gptq 0.800000 0.700000 0.275000 +0.00200 2");
    ck_assert_str_eq(sample_text(store, "SELECT one_minus_cosine || ' ' || delta_one_minus_cosine || ' ' || error ||"
                                        " coalesce(ppl, kl, delta_kl, top1_percent, spearman, '') FROM v_ablation"),
                     "0.20000 -0.50000 0.27500");
    /* The table of version 4 remains as a view. */
    ck_assert_str_eq(sample_text(store, "SELECT evaluation_id || ' ' || sentences || ' ' || pairs FROM encoding"),
                     test_format("%lld 2 1", (long long)id));
    /* The same key, measured by predictions, keeps no figure of the other kind. */
    put.kind = CALM_STORE_PREDICTIONS;
    put.tokens = 5, put.nll = 1, put.ppl = exp(1), put.kl = put.top1 = NAN;
    put.n_windows = 0;
    ck_ok(calm_store_evaluation_put(ctx, store, &put, &again));
    ck_assert_int_eq(again, id);
    ck_assert_int_eq(sample_number(store, "SELECT count(*) FROM evaluation WHERE kind = 'predictions' AND"
                                          " coalesce(pairs, error, cosine, cosine_min, spearman) IS NULL"), 1);
    calm_store_close(store);
}
END_OF_TEST

/* Stores only the maximum of a block's output. */
static void put_block_output(calm_store *store, const sample *s, int64_t block, double max_abs)
{
    const calm_store_activation row = {.model_id = s->model, .calibration_id = s->calibration, .block = block,
                                       .hook = test_format("model.layers.%ld.block_out", (long)block),
                                       .point = "block_out", .max_abs = max_abs};
    ck_ok(calm_store_activation_put(ctx, store, &row));
}

/* A learned block with its candidates; stored again it keeps its id and has only the new candidates. */
TEST(learned_round_trip)
{
    const char *path = sample_path();
    calm_store *store = sample_open(path, CALM_STORE_WRITE);
    const sample s = sample_fill(store);
    calm_store_candidate candidate = {.key = "start", .job_id = s.qkv, .calibration_id = s.calibration,
                                      .algorithm = "gptq", .chain = "c", .scheme = "w4a16_g128", .blob = "b"};
    calm_store_learned row = {.key = "l", .calibration_id = s.calibration, .learner = "learn@1(steps=200)",
                              .blob = "v", .blob_bytes = 7, .loss_before = 0.5, .loss_after = 0.25, .changed = 3,
                              .seconds = 2}, back;
    int64_t start, learned[2], id, again;
    ck_ok(calm_store_candidate_put(ctx, store, &candidate, &start));
    for (int i = 0; i < 2; i++) {
        candidate.key = i ? "second" : "first";
        ck_ok(calm_store_candidate_put(ctx, store, &candidate, &learned[i]));
    }
    row.block_id = sample_number(store, "SELECT min(id) FROM block");
    ck_ok(calm_store_learned_put(ctx, store, &row, learned, (int64_t[]){start, start}, 2, &id));
    ck_ok(calm_store_run_learned(ctx, store, s.run, id));
    ck_ok(calm_store_run_learned(ctx, store, s.run, id));
    ck_ok(calm_store_learned_find(ctx, store, "l", &back, &again));
    ck_assert(again == id && back.block_id == row.block_id && back.calibration_id == s.calibration);
    ck_assert_str_eq(back.learner, row.learner);
    ck_assert_str_eq(back.blob, "v");
    ck_assert_ptr_null(back.kept);
    ck_assert(back.loss_before == 0.5 && back.loss_after == 0.25 && back.changed == 3 && back.blob_bytes == 7);
    ck_assert_str_eq(sample_text(store, "SELECT block || ' ' || loss_before || ' ' || loss_after || ' ' || changed"
                                        " FROM v_learned"), "0 0.50000 0.25000 3");
    row.kept = "the loss rose";
    row.loss_after = NAN;
    ck_ok(calm_store_learned_put(ctx, store, &row, learned + 1, &start, 1, &again));
    ck_assert_int_eq(again, id);
    ck_assert_int_eq(sample_number(store, "SELECT sum(candidate_id) FROM learned_candidate"), learned[1]);
    ck_ok(calm_store_learned_find(ctx, store, "l", &back, &again));
    ck_assert_str_eq(back.kept, "the loss rose");
    ck_assert(isnan(back.loss_after));
    ck_ok(calm_store_learned_find(ctx, store, "none", &back, &again));
    ck_assert(again == 0 && !back.key);
    calm_store_close(store);
}
END_OF_TEST

/* A row of an ablation that is stored twice is one row; the view has the least KL first, and failures last. */
TEST(ablation_round_trip)
{
    calm_store *store = sample_open(sample_path(), CALM_STORE_WRITE);
    const sample s = sample_fill(store);
    const calm_store_window window = {.tokens = 511, .nll = 2.5, .kl = 51.1, .top1 = 400};
    calm_store_evaluation evaluation = {.key = "e1", .model_id = s.model, .subject = "gptq", .text_name = "t",
                                        .window_tokens = 512, .tokens = 511, .nll = 2.5, .ppl = 12.1825, .kl = 0.1,
                                        .top1 = 0.75, .windows = &window, .n_windows = 1};
    int64_t better, worse;
    ck_ok(calm_store_evaluation_put(ctx, store, &evaluation, &better));
    evaluation.key = "e2";
    evaluation.kl = 0.2;
    ck_ok(calm_store_evaluation_put(ctx, store, &evaluation, &worse));
    const calm_store_ablation failed = {.run_id = s.run, .subject = "actfit", .kind = "uniform", .bits = 4.125,
                                        .seconds = NAN, .differs = -1, .failure = "too few rows", .delta = NAN,
                                        .delta_se = NAN};
    const calm_store_ablation uniform = {.run_id = s.run, .subject = "gptq", .kind = "uniform", .bits = 4.125,
                                         .seconds = 1.25, .evaluation_id = worse, .delta = 0, .delta_se = 0};
    calm_store_ablation hybrid = {.run_id = s.run, .subject = "job cka_token token", .kind = "hybrid", .unit = "job",
                                  .metric = "cka_token", .rule = "token", .bits = 4.125, .seconds = 2, .differs = 9,
                                  .evaluation_id = better, .delta = -0.1, .delta_se = 0.005};
    ck_ok(calm_store_ablation_put(ctx, store, &failed));
    ck_ok(calm_store_ablation_put(ctx, store, &uniform));
    ck_ok(calm_store_ablation_put(ctx, store, &hybrid));
    hybrid.differs = 7;
    ck_ok(calm_store_ablation_put(ctx, store, &hybrid));
    ck_assert_str_eq(
        sample_text(store, "SELECT group_concat(kind || '|' || subject || '|' || bits || '|' || coalesce(kl, '') ||"
                           " '|' || coalesce(delta_kl, '') || '|' || coalesce(delta_se, '') || '|' ||"
                           " coalesce(differs, '') || '|' || coalesce(failure, ''), char(10)) FROM v_ablation"),
        "hybrid|job cka_token token|4.125|0.10000|-0.10000|0.00500|7|\n"
        "uniform|gptq|4.125|0.20000|+0.00000|0.00000|0|\n"
        "uniform|actfit|4.125|||||too few rows");
    ck_assert_str_eq(sample_text(store, "SELECT unit || metric || rule FROM ablation WHERE kind = 'hybrid'"),
                     "jobcka_tokentoken");
    /* Either figures or a failure, and only kinds and units of the schema. */
    calm_store_ablation bad = failed;
    bad.failure = NULL;
    ck_fails(calm_store_ablation_put(ctx, store, &bad), CALM_EARG, "");
    bad = failed;
    bad.kind = "guess";
    ck_fails(calm_store_ablation_put(ctx, store, &bad), CALM_EARG, "");
    bad = failed;
    bad.unit = "linear";
    ck_fails(calm_store_ablation_put(ctx, store, &bad), CALM_EARG, "");
    calm_store_close(store);
}
END_OF_TEST

TEST(emergence_is_the_first_tenfold_growth)
{
    calm_store *store = sample_open(sample_path(), CALM_STORE_WRITE);
    sample s = sample_fill(store);
    const double maxima[] = {2, 19, 191, 2000};
    for (int64_t block = 0; block < 2; block++)
        put_block_output(store, &s, block, maxima[block]);
    ck_assert_int_eq(sample_number(store, "SELECT count(*) FROM v_emergence WHERE emergence_block IS NULL"), 1);
    for (int64_t block = 2; block < 4; block++)
        put_block_output(store, &s, block, maxima[block]);
    ck_assert_int_eq(sample_number(store, "SELECT emergence_block FROM v_emergence"), 2);
    calm_store_close(store);
}
END_OF_TEST

TEST(views_read_like_a_report)
{
    calm_store *store = sample_open(sample_path(), CALM_STORE_WRITE);
    sample s = sample_fill(store);
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
    ck_assert_str_eq(sample_text(store,
                                 "SELECT unit || '|' || algorithm || '|' || scheme || '|' || one_minus_cka || '|' ||"
                                 " one_minus_cka_token || '|' || rel_mse || '|' || log_rel_mse || '|' || bits || '|' ||"
                                 " activation_max || '|' || activation_at || '|' || crest || '|' || advice || '|' ||"
                                 " reason FROM v_choices"),
                     "L0.qkv|gptq|w4a16_g128|1.25e-05|2.50e-05|3.10e-03|-5.750|4.125|-4.00|channel 17, token \"\\nthe\""
                     " (window 3, position 0)|3.0|plain (differs)|least log_rel_mse of 3");
    /* A job that stays float has a row without numbers. */
    ck_assert_int_eq(sample_number(store,
                                   "SELECT count(*) FROM v_choices WHERE algorithm = 'float' AND one_minus_cka IS NULL"
                                   " AND activation_max IS NULL AND activation_at IS NULL AND crest IS NULL"),
                     1);
    ck_assert_int_eq(sample_number(store, "SELECT count(*) FROM v_scores"), 5);
    ck_assert_str_eq(sample_text(store, "SELECT job || ' ' || chosen FROM v_candidates WHERE run = 1"), "qkv yes");
    calm_store_artifact file = {.run_id = s.run, .path = "out/model.safetensors", .role = "weights", .bytes = 5,
                                .sha256 = "s"};
    ck_ok(calm_store_artifact_put(ctx, store, &file));
    ck_ok(calm_store_artifact_put(ctx, store, &file));
    calm_store_outcome outcome = {.status = "finished", .result = "hybrid", .bits_per_weight = NAN};
    ck_ok(calm_store_run_end(ctx, store, s.run, &outcome));
    ck_assert_str_eq(sample_text(store,
                                 "SELECT model || ' ' || status || ' ' || result || ' ' || candidates || ' ' || choices"
                                 " FROM v_runs WHERE bits_per_weight IS NULL AND ppl_result IS NULL"),
                     "qwen finished hybrid 1 2");
    calm_store_close(store);
}
END_OF_TEST

int main(void)
{
    return run_tests("store", (const TTest *[]){
        every_table_and_column_has_a_comment, children_of_every_foreign_key_are_indexed, same_key_same_id,
        candidate_round_trip, candidate_replaced_keeps_its_id, rules_of_the_schema_hold,
        transactions_nest_and_roll_back, an_unfinished_run_goes_on, activations_round_trip,
        evaluations_round_trip, embeddings_round_trip, learned_round_trip, ablation_round_trip,
        emergence_is_the_first_tenfold_growth,
        views_read_like_a_report, NULL});
}
