/* calm inspect why: each way for a candidate to lose, and choices that the rule does not make. */
#include "ptq/io/json.h"
#include "tests/support/harness.h"
#include "tests/support/inspect_sample.h"

static const char *why(const char *path, const char *run, const char *unit)
{
    return inspect_shown(path, "why", run, unit, CALM_INSPECT_TEXT);
}

TEST(the_rule_and_the_losers)
{
    const char *path = inspect_sample(), *text = why(path, "1", "0.qkv");
    ck_has(text, "chosen       gptq\n");
    ck_has(text, "rule_choice  gptq\n");
    ck_has(text, "consistent   yes\n");
    ck_has(text, "result       hybrid\n");
    ck_has(text, "on the shortlist with a larger log_rel_mse, by 0.5");
    ck_has(text, "outside the shortlist: cka_token is 10 times the least, over 1.05");
    text = why(path, "2", "0.qkv");
    ck_has(text, "larger rel_mse: 2 times the least");
    ck_has(text, "result       uniform gptq: this unit has that in the checkpoint\n");
    ck_has(text, "verdict      uniform gptq is better\n");
}
END_OF_TEST

/* Adds a run without separate scores: candidates 1 to 3 of job 1, the second chosen. */
static void add_run(calm_store *store, const char *key, const char *rule, const char *recipe)
{
    const calm_store_run run = {.key = key, .model_id = 1, .calibration_id = 1, .unit = "job", .rule = rule,
                                .metric = "cka_token", .recipe = recipe};
    int64_t id;
    ck_ok(calm_store_run_begin(ctx, store, &run, &id, NULL));
    for (int64_t candidate = 1; candidate <= 3; candidate++)
        ck_ok(calm_store_run_candidate(ctx, store, id, candidate));
    ck_ok(calm_store_choice_put(ctx, store, &(calm_store_choice){.run_id = id, .job_id = 1, .candidate_id = 2,
                                                                .unit = "model.layers.0.qkv", .reason = "x"}));
    ck_ok(calm_store_run_end(ctx, store, id, &(calm_store_outcome){.status = "finished", .result = "hybrid",
                                                                  .bits_per_weight = NAN}));
}

/* The factor is that of the run: of a selection, else of the recipe, else 1.05. */
TEST(the_factor_of_the_run)
{
    static const char *const recipes[] = {"{\"choice\":{\"shortlist\":2}}",
                                          "{\"choice\":{\"shortlist\":2},\"select\":{\"shortlist\":20}}"};
    const char *path;
    calm_store *store = inspect_sample_open(&path);
    for (size_t i = 0; i < 2; i++)
        add_run(store, recipes[i], "token", recipes[i]);
    calm_store_close(store);
    ck_has(why(path, "5", "0.qkv"), "outside the shortlist: cka_token is 10 times the least, over 2");
    ck_has(why(path, "5", "0.qkv"), "chosen       gptq\n");
    ck_has(why(path, "5", "0.qkv"), "result       gptq\n");    /* its only unit has it: no hybrid */
    ck_has(why(path, "5", "0.qkv"), "least log_rel_mse of 2 within 2 of the least cka_token");
    ck_has(why(path, "6", "0.qkv"), "least log_rel_mse of 3 within 20 of the least cka_token");
    ck_has(why(path, "6", "0.qkv"), "on the shortlist with a larger log_rel_mse, by 3");
}
END_OF_TEST

TEST(choices_that_the_rule_does_not_make)
{
    const char *path = inspect_sample(), *text = why(path, "1", "0.down");
    ck_has(text, "consistent   no: pinned\n");
    ck_has(text, "chosen, but the rule takes another");
    ck_has(text, "the rule takes this one");
    ck_has(text, "failed: not positive definite");
    text = why(path, "1", "1.qkv");
    ck_has(text, "consistent   no\n");
    text = why(path, "1", "1.down");
    ck_has(text, "chosen       float\n");
    text = why(path, "3", "0.qkv");
    ck_has(text, "yes, at its scheme; a budget of bits decided the scheme");
    ck_has(text, "another scheme: the budget of bits decided");
    text = why(path, "4", "0.attention");
    ck_has(text, "nothing was chosen");
    text = why(path, "2", "1.down");
    ck_has(text, "it has no candidates");
}
END_OF_TEST

/* The wishes that calm select stores. */
TEST(what_was_forbidden)
{
    static const char *const words[] = {"gptq-hls", "gptq-hls w4a16_g128", "#1"};
    const char *path;
    calm_store *store = inspect_sample_open(&path);
    for (size_t i = 0; i < 3; i++)
        add_run(store, words[i], "argmax",
                test_format("{\"select\":{\"run\":1,\"forbid\":[\"none\",\"%s\"]}}", words[i]));
    calm_store_close(store);
    for (int run = 5; run < 8; run++) {
        const char *text = why(path, test_format("%d", run), "0.qkv");
        ck_has(text, "consistent   yes\n");    /* gptq-hls has less */
        ck_has(text, "left out as asked (--forbid)");
        ck_has(text, "larger cka_token: 9.62 times the least");
    }
}
END_OF_TEST

TEST(equal_scores_go_by_the_key)
{
    const char *path;
    calm_store *store = inspect_sample_open(&path);
    const calm_store_score scores[] = {{"job", "cka_token", 1.04e-4}, {"job", "log_rel_mse", -7}};
    const calm_store_candidate candidate = {.key = "zzz", .job_id = 1, .calibration_id = 1, .algorithm = "twin",
                                            .chain = "x", .scheme = "w4a16_g128", .blob = "b", .blob_bytes = 1,
                                            .bits_per_weight = NAN, .damp = NAN, .scores = scores, .n_scores = 2};
    int64_t id;
    ck_ok(calm_store_candidate_put(ctx, store, &candidate, &id));
    ck_ok(calm_store_run_candidate(ctx, store, 1, id));
    calm_store_close(store);
    ck_has(why(path, "1", "0.qkv"), "equal in all that the rule reads; the first of the pool is taken");
}
END_OF_TEST

TEST(figures_for_programs)
{
    const char *path = inspect_sample(), *json = inspect_shown(path, "why", "1", "0.qkv", CALM_INSPECT_JSON);
    calm_json *root;
    ck_ok(calm_json_parse(ctx, "stdout", json, strlen(json), &root));
    const calm_json *unit = calm_json_at(calm_json_get(root, "unit"), 0);
    ck_assert_str_eq(calm_json_string(calm_json_get(unit, "tie_metric"), ""), "log_rel_mse");
    const calm_json *rows = calm_json_get(root, "candidates"), *row = calm_json_at(rows, 1);
    ck_assert_uint_eq(calm_json_size(rows), 3);
    ck_assert_str_eq(calm_json_string(calm_json_get(row, "entry"), ""), "gptq");    /* by their metric */
    ck_near(calm_json_number(calm_json_get(row, "score"), 0), 1.04e-4, 1e-18);
    ck_near(calm_json_number(calm_json_get(row, "above_least"), 0), 4e-6, 1e-18);
    ck_near(calm_json_number(calm_json_get(row, "times_least"), 0), 1.04, 1e-12);
    ck_assert(calm_json_number(calm_json_get(row, "rel_mse"), 0) == 1e-3);
    calm_json_free(root);
    const char *csv = inspect_shown(path, "why", "1", "0.qkv", CALM_INSPECT_CSV);
    ck_assert(strncmp(csv, "unit\r\nunit,jobs,chosen,", 23) == 0);
    ck_has(csv, "\r\n\r\ncandidates\r\nentry,chosen,");
}
END_OF_TEST

TEST(what_there_is_no_why_of)
{
    const char *path = inspect_sample(), *args[] = {"1"}, *out;
    calm_inspect_query query = {.what = "why", .args = args, .n_args = 1};
    ck_fails(inspect_printed(path, &query, &out), CALM_EARG, "name a unit with --unit");
    query.unit = "0.qvk";
    ck_fails(inspect_printed(path, &query, &out), CALM_ENOTFOUND, "did you mean \"0.qkv\"?");
}
END_OF_TEST

int main(void)
{
    return run_tests("inspect_why", (const TTest *[]){the_rule_and_the_losers, the_factor_of_the_run,
                                                      choices_that_the_rule_does_not_make,
                                                      what_was_forbidden, equal_scores_go_by_the_key,
                                                      figures_for_programs, what_there_is_no_why_of, NULL});
}
