/* calm inspect layers: the strip in Unicode, ASCII and colours, and its rows. */
#include "ptq/io/json.h"
#include "tests/support/harness.h"
#include "tests/support/inspect_sample.h"

__attribute__((noinline)) static const char *strip(const char *path, bool ascii, bool colour, const char *metric)
{
    const char *args[] = {"1"}, *out = NULL;
    const calm_inspect_query query = {.what = "layers", .args = args, .n_args = 1, .metric = metric, .ascii = ascii,
                                      .colour = colour};
    ck_ok(inspect_printed(path, &query, &out));
    return out;
}

TEST(the_strip)
{
    const char *path = inspect_sample();
    ck_assert_str_eq(
        strip(path, true, false, NULL),
        "Run 1: qwen, finished\n\n"
        "cka_token of each candidate, as times the least of its job:\n"
        "  . up to 1.05  - up to 1.25  + up to 2  * up to 4  # more  x failed   ?  no score  [ ] chosen\n\n"
        "   1  rtn\n   2  gptq\n   3  gptq-hls\n\n"
        "unit     1  2  3       least  chosen\n"
        "0.qkv    # [.] .    1.00e-04  gptq\n"
        "0.down  [+] x  .    1.00e-03  rtn\n"
        "1.qkv       . [+]   1.00e-04  gptq-hls\n"
        "1.down      .       1.00e-04  float\n");
    const char *text = strip(path, false, false, NULL);
    ck_has(text, "0.qkv    \u2588 [\u00b7] \u00b7    1.00e-04  gptq\n");
    ck_has(text, "0.down  [\u2592] \u00d7  \u00b7    1.00e-03  rtn\n");
    ck_lacks(text, "\033");
    ck_has(strip(path, true, true, NULL), "0.qkv    \033[31m#\033[0m [\033[32m.\033[0m] \033[32m.\033[0m ");
    for (const char *at = strip(path, true, false, NULL); *at; at++)
        ck_assert((unsigned char)*at < 128);
}
END_OF_TEST

TEST(another_metric)
{
    const char *path = inspect_sample();
    ck_has(strip(path, true, false, "rel_mse"), "0.qkv    # [.] +    1.00e-03  gptq\n");
    /* e^0.5 = 1.65 and e^3 = 20 times */
    ck_has(strip(path, true, false, "log_rel_mse"), "0.qkv    # [.] +   -7.00e+00  gptq\n");
    ck_has(strip(path, true, false, "nothing"), "0.qkv    ? [?] ?              gptq\n");
}
END_OF_TEST

TEST(rows_for_programs)
{
    const char *path = inspect_sample();
    const char *csv = inspect_shown(path, "layers", "1", NULL, CALM_INSPECT_CSV);
    ck_has(csv, "unit,block,entry,algorithm,scheme,metric,score,times_least,chosen,failure,candidate\r\n"
                "model.layers.0.qkv,0,rtn,rtn,w4a16_g128,cka_token,0.001,10,false,,3\r\n");
    ck_has(csv, "model.layers.0.down,0,gptq,gptq,w4a16_g128,cka_token,,,false,not positive definite,4\r\n");
    calm_json *root;
    const char *json = inspect_shown(path, "layers", "1", NULL, CALM_INSPECT_JSON);
    ck_ok(calm_json_parse(ctx, "stdout", json, strlen(json), &root));
    const calm_json *rows = calm_json_get(root, "layers");
    ck_assert_uint_eq(calm_json_size(rows), 9);
    ck_assert(calm_json_bool(calm_json_get(calm_json_at(rows, 1), "chosen"), false));
    calm_json_free(root);
}
END_OF_TEST

TEST(stored_names_reach_no_terminal_as_they_are)
{
    const char *path;
    calm_store *store = inspect_sample_open(&path);
    const calm_store_job job = {.block_id = 1, .name = "model.layers.0.\033[31m", .role = "r", .sublayer = "mlp",
                                .linears = "l", .out = 1, .in = 1};
    calm_store_candidate candidate = {.key = "evil", .calibration_id = 1, .algorithm = "\033[2Jx\n", .chain = "x",
                                      .scheme = "w\033]4", .failure = "\033c", .bits_per_weight = NAN, .damp = NAN};
    int64_t id;
    ck_ok(calm_store_job_id(ctx, store, &job, &candidate.job_id));
    ck_ok(calm_store_candidate_put(ctx, store, &candidate, &id));
    ck_ok(calm_store_run_candidate(ctx, store, 1, id));
    ck_ok(calm_store_choice_put(
        ctx, store,
        &(calm_store_choice){
            .run_id = 1, .job_id = candidate.job_id, .candidate_id = id, .unit = "\033u", .reason = "\033r"}));
    calm_store_close(store);
    ck_lacks(strip(path, false, false, NULL), "\033");
    ck_has(strip(path, false, false, NULL), "\\u{1b}[2Jx\\n w\\u{1b}]4");
    const char *why = inspect_shown(path, "why", "1", "0.\033[31m", CALM_INSPECT_TEXT);
    ck_lacks(why, "\033");
    ck_has(why, "\\u{1b}c");
    const char *args[] = {"1"}, *out = NULL;
    const calm_inspect_query query = {.what = "why", .args = args, .n_args = 1, .unit = "0.x"};
    ck_fails(inspect_printed(path, &query, &out), CALM_ENOTFOUND, "it has model.layers.0.qkv");
}
END_OF_TEST

/* Half of the largest number of columns and a hundred jobs: nothing is cut, and all rows have one length. */
TEST(many_units_and_candidates)
{
    const char *path;
    calm_store *store = inspect_sample_open(&path);
    calm_store_job job = {.role = "r", .sublayer = "mlp", .linears = "l", .out = 1, .in = 1};
    int64_t id;
    ck_ok(calm_store_begin(ctx, store));
    for (int b = 2; b < 102; b++) {
        job.name = test_format("model.layers.%d.r", b);
        ck_ok(calm_store_block_id(ctx, store, &(calm_store_block){1, b, job.name, "decoder"}, &job.block_id));
        int64_t job_id;
        ck_ok(calm_store_job_id(ctx, store, &job, &job_id));
        for (int c = 0; c < 20; c++) {
            const calm_store_score score = {"job", "cka_token", 1 + c};
            const calm_store_candidate candidate = {.key = test_format("m%d %d", b, c), .job_id = job_id,
                                                    .calibration_id = 1, .algorithm = test_format("a%d", c),
                                                    .chain = test_format("x%d", c),
                                                    .scheme = "s", .blob = "b", .blob_bytes = 1, .bits_per_weight = NAN,
                                                    .damp = NAN, .scores = &score, .n_scores = 1};
            ck_ok(calm_store_candidate_put(ctx, store, &candidate, &id));
            ck_ok(calm_store_run_candidate(ctx, store, 1, id));
        }
    }
    ck_ok(calm_store_commit(ctx, store));
    calm_store_close(store);
    const char *text = strip(path, true, false, NULL), *row = strstr(text, "\n101.r");
    ck_assert_ptr_nonnull(row);
    ck_has(row, " .  +  *  *  #  #");
    ck_has(row, "1.00e+00");
    ck_has(text, "  23  a19 s\n");
}
END_OF_TEST

int main(void)
{
    return run_tests("inspect_layers",
                     (const TTest *[]){the_strip, another_metric, rows_for_programs,
                                       stored_names_reach_no_terminal_as_they_are, many_units_and_candidates, NULL});
}
