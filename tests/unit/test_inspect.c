/* calm inspect: its output for a store and for a model, as text and as JSON, also while another process holds the
 * store. */
#include "cli/inspect/inspect.h"

#include <stdio.h>
#include <unistd.h>

#include "cli/command.h"
#include "ptq/base/file.h"
#include "store/store.h"
#include "ptq/io/json.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

/* ---- a store ---- */

static const calm_store_score gptq_scores[] = {
    {NULL, "cka", 1.25e-5}, {NULL, "cka_token", 2.5e-5}, {NULL, "rel_mse", 0.0031}, {NULL, "log_rel_mse", -5.75}};

static void put_candidates(calm_store *store, int64_t job, int64_t calibration, int64_t run)
{
    calm_store_candidate candidate = {.key = "k1",
                                      .job_id = job,
                                      .calibration_id = calibration,
                                      .algorithm = "gptq",
                                      .chain = "absmax@1+gptq@1",
                                      .scheme = "w4a16_g128",
                                      .blob = "b1",
                                      .blob_bytes = 4096,
                                      .bits_per_weight = 4.125,
                                      .damp = 0.01,
                                      .scores = gptq_scores,
                                      .n_scores = 4};
    int64_t id;
    ck_ok(calm_store_candidate_put(ctx, store, &candidate, &id));
    ck_ok(calm_store_run_candidate(ctx, store, run, id));
    ck_ok(calm_store_choice_put(ctx, store,
                                &(calm_store_choice){.run_id = run,
                                                     .job_id = job,
                                                     .candidate_id = id,
                                                     .unit = "model.layers.0.self_attn.qkv",
                                                     .reason = "least of 2"}));
    candidate = (calm_store_candidate){.key = "k2", .job_id = job, .calibration_id = calibration, .algorithm = "rtn",
                                       .chain = "absmax@1+nearest@1", .scheme = "w4a16_g128", .bits_per_weight = NAN,
                                       .damp = NAN, .failure = "not positive definite"};
    ck_ok(calm_store_candidate_put(ctx, store, &candidate, &id));
    ck_ok(calm_store_run_candidate(ctx, store, run, id));
}

static void put_figures(calm_store *store, int64_t model, int64_t calibration, int64_t run)
{
    static const calm_store_peak peak = {-123.456789, 3, 17, 42, "the\n"};
    calm_store_activation activation = {.model_id = model,
                                        .calibration_id = calibration,
                                        .point = "qkv_in",
                                        .block = 0,
                                        .hook = "model.layers.0.self_attn.qkv.input",
                                        .channels = 64,
                                        .count = 640,
                                        .n_tokens = 10,
                                        .max_abs = 123.456789,
                                        .q50 = 0.5,
                                        .peaks = &peak,
                                        .n_peaks = 1};
    calm_store_evaluation evaluation = {.key = "e1", .model_id = model, .subject = "float", .text_name = "test.txt",
                                        .window_tokens = 512, .tokens = 1000, .nll = 2.5, .ppl = 12.18249396070347,
                                        .kl = NAN, .top1 = NAN};
    int64_t id;
    ck_ok(calm_store_activation_put(ctx, store, &activation));
    ck_ok(calm_store_evaluation_put(ctx, store, &evaluation, &id));
    ck_ok(calm_store_verdict_put(ctx, store, &(calm_store_verdict){.run_id = run, .evaluation_id = id, .role = "test",
                                                                  .delta = NAN, .delta_se = NAN}));
    ck_ok(calm_store_ablation_put(ctx, store, &(calm_store_ablation){.run_id = run, .subject = "job cka_token token",
                                                                    .kind = "hybrid", .unit = "job", .bits = 4.125,
                                                                    .seconds = NAN, .differs = 3, .evaluation_id = id,
                                                                    .delta = -0.25, .delta_se = NAN}));
}

/* Makes two runs of one block with one job; the second has all kinds of rows. */
static const char *new_store(calm_store **out)
{
    const char *path = test_format("%s/calm.db", test_directory());
    const calm_store_how how = {.mode = CALM_STORE_WRITE, .command = "calm test"};
    calm_store *store;
    int64_t model, calibration, block, job, run;
    ck_ok(calm_store_open(ctx, path, &how, &store));
    ck_ok(calm_store_model_id(
        ctx, store,
        &(calm_store_model){
            .digest = "m", .name = "qwen", .architecture = "Qwen3ForCausalLM", .n_params = 5, .n_blocks = 1},
        &model));
    ck_ok(calm_store_calibration_id(
        ctx, store,
        &(calm_store_calibration){
            .key = "c", .text_name = "bundled", .n_windows = 4, .window_tokens = 8, .n_tokens = 32, .seed = -1},
        &calibration));
    ck_ok(calm_store_block_id(ctx, store, &(calm_store_block){model, 0, "model.layers.0", "decoder"}, &block));
    ck_ok(calm_store_job_id(ctx, store,
                            &(calm_store_job){.block_id = block,
                                              .role = "qkv",
                                              .name = "model.layers.0.self_attn.qkv",
                                              .sublayer = "attention",
                                              .linears = "q k v",
                                              .out = 128,
                                              .in = 64,
                                              .input_hook = "model.layers.0.self_attn.qkv.input"},
                            &job));
    for (int i = 0; i < 2; i++)
        ck_ok(calm_store_run_begin(ctx, store,
                                   &(calm_store_run){.key = i ? "r2" : "r1",
                                                     .model_id = model,
                                                     .rule = "token",
                                                     .calibration_id = calibration,
                                                     .metric = "cka_token",
                                                     .command = "calm quantize",
                                                     .version = "0"},
                                   &run, NULL));
    put_candidates(store, job, calibration, run);
    put_figures(store, model, calibration, run);
    const calm_store_outcome done = {
        .status = "finished", .result = "hybrid", .bits_per_weight = 4.125, .bytes_before = 100};
    ck_ok(calm_store_run_end(ctx, store, run, &done));
    *out = store;
    return path;
}

static const char *store_only(void)
{
    calm_store *store;
    const char *path = new_store(&store);
    calm_store_close(store);
    return path;
}

/* ---- running the command ---- */

/* Runs `calm inspect args...` with stdout into a string. */
static calm_status inspect(const char *a, const char *b, const char *c, bool json, char **out)
{
    extern const calm_command calm_cmd_inspect;
    struct {
        calm_common common;
        calm_model_how how;
        const char *store, *unit, *metric;
        bool json, csv, ascii;
    } opts = {.json = json};
    const char *args[] = {a, b, c}, *path = test_format("%s/stdout", test_directory());
    size_t n_bytes;
    opts.common.args = (calm_words){args, c ? 3 : b ? 2 : 1};
    fflush(stdout);
    const int saved = dup(STDOUT_FILENO);
    ck_assert_ptr_nonnull(freopen(path, "wb", stdout));
    calm_status status = calm_cmd_inspect.run(ctx, &opts);
    fflush(stdout);
    ck_assert_int_ge(dup2(saved, STDOUT_FILENO), 0);
    close(saved);
    char message[CALM_MESSAGE_MAX];
    const calm_status kept = ctx->status;
    memcpy(message, ctx->message, sizeof message);
    calm_ctx_clear_failure(ctx);
    ck_ok(calm_read_file(ctx, path, 1 << 20, out, &n_bytes));
    ctx->status = kept;
    memcpy(ctx->message, message, sizeof message);
    ck_assert(status == CALM_OK || n_bytes == 0);    /* nothing half-printed */
    return status;
}

static const char *shown(const char *a, const char *b, const char *c)
{
    char *out;
    ck_ok(inspect(a, b, c, false, &out));
    return out;
}

/* Returns row `row` of the list `what`; `root` is the document, which the caller frees. */
static const calm_json *json_row(const char *path, const char *what, const char *run, size_t row, calm_json **root)
{
    char *out;
    ck_ok(inspect(path, what, run, true, &out));
    ck_ok(calm_json_parse(ctx, "stdout", out, strlen(out), root));
    return calm_json_at(calm_json_get(*root, what ? what : "summary"), row);
}

/* ---- stores ---- */

TEST(every_view_of_a_store_prints)
{
    static const char *const views[] = {"summary", "runs", "blocks", "candidates", "scores", "choices", "activations",
                                        "evaluations", "ablation"};
    static const char *const words[] = {"Qwen3ForCausalLM", "finished", "q k v", "not positive definite", "1.250e-05",
                                        "least of 2", "the\\n", "12.1825", "job cka_token token"};
    const char *path = store_only();
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
        const char *text = shown(path, views[i], NULL);
        ck_assert_msg(strstr(text, words[i]), "%s: \"%s\" lacks \"%s\"", views[i], text, words[i]);
        char *out;
        calm_json *root;
        ck_ok(inspect(path, views[i], NULL, true, &out));
        ck_ok(calm_json_parse(ctx, "stdout", out, strlen(out), &root));
        ck_assert_msg(i == 0 || calm_json_size(calm_json_get(root, views[i])) > 0, "%s: %s", views[i], out);
        calm_json_free(root);
    }
    ck_assert_str_eq(shown(path, NULL, NULL), shown(path, "summary", NULL));
}
END_OF_TEST

TEST(json_has_all_digits)
{
    const char *path = store_only();
    calm_json *root;
    const calm_json *row = json_row(path, "choices", NULL, 0, &root);
    ck_assert(calm_json_number(calm_json_get(row, "one_minus_cka"), 0) == 1.25e-5);
    ck_assert(calm_json_number(calm_json_get(row, "activation_max"), 0) == -123.456789);
    ck_assert_str_eq(calm_json_string(calm_json_get(row, "token"), ""), "the\n");
    ck_assert_int_eq(calm_json_int(calm_json_get(row, "channel"), 0), 42);
    calm_json_free(root);
    row = json_row(path, "evaluations", NULL, 0, &root);
    ck_assert(calm_json_number(calm_json_get(row, "ppl"), 0) == 12.18249396070347);
    ck_assert_int_eq(calm_json_typeof(calm_json_get(row, "kl")), CALM_JSON_NULL);
    calm_json_free(root);
    row = json_row(path, "candidates", NULL, 0, &root);
    ck_assert(calm_json_bool(calm_json_get(row, "chosen"), false));
    ck_assert_int_eq(calm_json_typeof(calm_json_get(calm_json_at(calm_json_get(root, "candidates"), 1), "chosen")),
                     CALM_JSON_BOOL);
    calm_json_free(root);
    char *out;
    ck_ok(inspect(path, "summary", NULL, true, &out));
    ck_ok(calm_json_parse(ctx, "stdout", out, strlen(out), &root));
    ck_assert_int_eq(calm_json_int(calm_json_get(calm_json_at(calm_json_get(root, "store"), 0), "failed"), 0), 1);
    ck_assert_uint_eq(calm_json_size(calm_json_get(root, "runs")), 2);
    ck_assert_uint_eq(calm_json_size(calm_json_get(root, "models")), 1);
    ck_assert_uint_eq(calm_json_size(calm_json_get(root, "calibrations")), 1);
    calm_json_free(root);
}
END_OF_TEST

TEST(a_run_is_the_newest_or_the_one_named)
{
    const char *path = store_only();
    ck_assert_ptr_nonnull(strstr(shown(path, "choices", NULL), "Run 2: qwen, finished"));
    ck_assert_ptr_nonnull(strstr(shown(path, "choices", "1"), "Run 1: qwen, running"));
    ck_assert_ptr_null(strstr(shown(path, "choices", "1"), "gptq"));
    ck_assert_ptr_null(strstr(shown(path, "runs", "1"), "hybrid"));
    /* Its only job has gptq. */
    ck_assert_ptr_nonnull(strstr(shown(path, "runs", NULL), "  finished  gptq "));
    ck_assert_ptr_nonnull(strstr(shown(path, "show", "2"), "  result           gptq\n"));
    char *out;
    ck_fails(inspect(path, "choices", "7", false, &out), CALM_ENOTFOUND, "no run 7; it has 1, 2");
    ck_fails(inspect(path, "choices", "0", false, &out), CALM_EARG, "RUN \"0\": expected a number from 1");
    ck_fails(inspect(path, "choices", "x", false, &out), CALM_EARG, "RUN \"x\"");
    ck_fails(inspect(path, "choices", "99999999999999999999", false, &out), CALM_EARG, "expected a number");
}
END_OF_TEST

TEST(an_empty_store)
{
    const char *path = test_format("%s/calm.db", test_directory());
    const calm_store_how how = {.mode = CALM_STORE_WRITE};
    calm_store *store;
    ck_ok(calm_store_open(ctx, path, &how, &store));
    calm_store_close(store);
    ck_assert_ptr_nonnull(strstr(shown(path, "choices", NULL), "none"));
    ck_assert_ptr_nonnull(strstr(shown(path, NULL, NULL), "Calibrations"));
}
END_OF_TEST

TEST(while_another_writes)
{
    calm_store *store;
    const char *path = new_store(&store);
    ck_ok(calm_store_begin(ctx, store));
    int64_t id;
    ck_ok(
        calm_store_model_id(ctx, store, &(calm_store_model){.digest = "n", .name = "other", .architecture = "X"}, &id));
    ck_assert_ptr_null(strstr(shown(path, "summary", NULL), "other"));
    ck_ok(calm_store_commit(ctx, store));
    ck_assert_ptr_nonnull(strstr(shown(path, "summary", NULL), "other"));
    calm_store_close(store);
}
END_OF_TEST

/* ---- models ---- */

TEST(every_view_of_a_model_prints)
{
    tiny_model spec = tiny_default;
    spec.tied = false;
    spec.bias = true;
    spec.window = 5;
    const char *dir = tiny_model_write(&spec);
    calm_json *root;
    const calm_json *row = json_row(dir, NULL, NULL, 0, &root);
    /* tests/unit/test_model.c counts the same tensors; here with the biases of q, k, v and o. */
    const int64_t block = 32 * 32 + 2 * 16 * 32 + 32 * 32 + 3 * 48 * 32 + 2 * 32 + 2 * 8 + 32 + 16 + 16 + 32;
    ck_assert_int_eq(calm_json_int(calm_json_get(row, "parameters"), 0), 2 * block + 32 + 2 * 61 * 32);
    ck_assert_int_eq(calm_json_int(calm_json_get(row, "bytes"), 0), 2 * (2 * block + 32 + 2 * 61 * 32));
    ck_assert_int_eq(calm_json_int(calm_json_get(row, "sliding_blocks"), 0), 1);
    ck_assert(calm_json_number(calm_json_get(row, "bits_per_weight"), 0) == 16);
    ck_assert(calm_json_number(calm_json_get(row, "norm_eps"), 0) == 1e-6);
    calm_json_free(root);
    row = json_row(dir, "blocks", NULL, 0, &root);
    ck_assert_uint_eq(calm_json_size(calm_json_get(root, "blocks")), 8);
    ck_assert_str_eq(calm_json_string(calm_json_get(row, "linears"), ""),
                     "self_attn.q_proj self_attn.k_proj self_attn.v_proj");
    ck_assert_int_eq(calm_json_int(calm_json_get(row, "out"), 0), 64);
    calm_json_free(root);
    row = json_row(dir, "linears", NULL, 13, &root);
    ck_assert_uint_eq(calm_json_size(calm_json_get(root, "linears")), 14);
    ck_assert_str_eq(calm_json_string(calm_json_get(row, "linear"), ""), "model.layers.1.mlp.down_proj");
    ck_assert_str_eq(calm_json_string(calm_json_get(row, "scheme"), ""), "BF16");
    calm_json_free(root);
    ck_assert_ptr_nonnull(strstr(shown(dir, "summary", NULL), "Qwen3ForCausalLM"));
    ck_assert_ptr_nonnull(strstr(shown(dir, "linears", NULL), "model.layers.0.self_attn.q_proj"));
}
END_OF_TEST

/* ---- neither ---- */

TEST(what_is_neither_is_refused)
{
    const char *dir = test_directory(), *path = test_format("%s/text", dir), *store = store_only();
    char *out;
    ck_ok(calm_write_file(ctx, path, "no database here, but long enough", 33));
    ck_fails(inspect(path, NULL, NULL, false, &out), CALM_EFORMAT,
             "text: neither a store nor a model directory nor a GGUF file");
    ck_fails(inspect("/dev/null", NULL, NULL, false, &out), CALM_EFORMAT, "neither");
    ck_fails(inspect(dir, NULL, NULL, false, &out), CALM_ENOTFOUND, "no config.json here");
    ck_fails(inspect(test_format("%s/none", dir), NULL, NULL, false, &out), CALM_ENOTFOUND,
             "expected a store, the directory of a model or a GGUF file");
    ck_fails(inspect("nothing.db", NULL, NULL, false, &out), CALM_ENOTFOUND, "expected a store, the directory");
    ck_fails(inspect("nobody-knows-this", NULL, NULL, false, &out), CALM_ENOTFOUND, "known names: ");
    ck_fails(inspect(store, "chioces", NULL, false, &out), CALM_EARG, "did you mean \"choices\"?");
    ck_fails(inspect(store, "qqqqqqqq", NULL, false, &out), CALM_EARG, "known: summary, runs");
    const char *model = tiny_model_write(&tiny_default);
    ck_fails(inspect(model, "layers", NULL, false, &out), CALM_EARG, "known: summary, blocks, linears");
    ck_fails(inspect(model, "blocks", "2", false, &out), CALM_EARG, "RUN belongs to a store");
    *strrchr((char *)(uintptr_t)store, '/') = '\0';
    ck_fails(inspect(store, NULL, NULL, false, &out), CALM_ENOTFOUND, "did you mean ");
}
END_OF_TEST

int main(void)
{
    return run_tests("inspect", (const TTest *[]){
        every_view_of_a_store_prints, json_has_all_digits, a_run_is_the_newest_or_the_one_named, an_empty_store,
        while_another_writes, every_view_of_a_model_prints, what_is_neither_is_refused, NULL});
}
