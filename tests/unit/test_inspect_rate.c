/* Rate against distortion: which runs no other run beats, among runs with the same test. */
#include <math.h>

#include "ptq/io/json.h"
#include "tests/support/harness.h"
#include "tests/support/inspect_sample.h"
#include "tests/support/store_sample.h"

/* Adds a finished run with this many bytes, whose result lost `kl` on this many windows; NaN: not measured. */
static void add(calm_store *store, const char *key, int64_t bytes, double kl, size_t windows)
{
    static const calm_store_window each[32];
    const int64_t model = sample_number(store, "SELECT min(id) FROM model");
    const calm_store_run run = {.key = key, .model_id = model, .unit = "job", .command = "calm quantize",
                                .rule = "token", .metric = "cka_token",
                                .recipe = key[0] == 'g' ? "{\"schemes\":[\"q3_k\",\"q4_k\"],\"format\":\"gguf\"}"
                                                  : "{\"scheme\":\"w4a16_g128\",\"format\":\"gguf\"}",
                                .calibration_id = sample_number(store, "SELECT min(id) FROM calibration"),
                                .version = "0", .n_threads = 1};
    const calm_store_evaluation test = {.key = test_format("e-%s", key), .model_id = model, .subject = "rtn", .ppl = 9,
                                        .text_name = "test.txt", .window_tokens = 512, .n_windows = windows,
                                        .windows = each, .tokens = 1000, .nll = log(9), .kl = kl, .top1 = 0.5};
    int64_t id, evaluation;
    ck_ok(calm_store_run_begin(ctx, store, &run, &id, NULL));
    if (!isnan(kl)) {
        ck_ok(calm_store_evaluation_put(ctx, store, &test, &evaluation));
        ck_ok(calm_store_verdict_put(ctx, store, &(calm_store_verdict){.run_id = id, .evaluation_id = evaluation,
                                                                       .role = "test", .subject = "rtn", .delta = NAN,
                                                                       .delta_se = NAN}));
    }
    ck_ok(calm_store_run_end(ctx, store, id, &(calm_store_outcome){"finished", "rtn", "", 4, 1000, bytes}));
}

TEST(front_of_each_test)
{
    /* Runs on 20 windows: small and lossy, dominated, one equal to that, large and exact; one on 30 that would beat
     * all. */
    const struct {
        const char *key;
        int64_t bytes;
        double kl;
        size_t windows;
        bool front;
    } runs[] = {{"a", 300, 0.05, 20, true},  {"b", 400, 0.06, 20, false}, {"c", 400, 0.02, 20, true},
                {"d", 400, 0.02, 20, true},  {"e", 500, 0.01, 20, true},  {"f", 600, 0.01, 20, false},
                {"g", 100, 0.001, 30, true}, {"h", 100, NAN, 20, false}};
    const size_t n = sizeof runs / sizeof *runs - 1;    /* the last is in no row */
    const char *path;
    calm_store *store = inspect_sample_open(&path);
    const int64_t before = sample_number(store, "SELECT max(id) FROM run");
    for (size_t i = 0; i <= n; i++)
        add(store, runs[i].key, runs[i].bytes, runs[i].kl, runs[i].windows);
    calm_store_close(store);
    calm_json *root;
    const char *text = inspect_shown(path, "rate", NULL, NULL, CALM_INSPECT_JSON);
    ck_ok(calm_json_parse(ctx, "stdout", text, strlen(text), &root));
    const calm_json *rows = calm_json_get(root, "rate");
    size_t found = 0;
    for (size_t i = 0; i < calm_json_size(rows); i++) {
        const calm_json *row = calm_json_at(rows, i);
        const int64_t at = calm_json_int(calm_json_get(row, "run"), 0) - before - 1;
        if (at < 0)    /* of the sample */
            continue;
        ck_assert_int_lt(at, (int64_t)n);
        ck_assert_int_eq(calm_json_int(calm_json_get(row, "bytes"), 0), runs[at].bytes);
        ck_assert_str_eq(calm_json_string(calm_json_get(row, "format"), ""), "gguf");
        ck_assert_msg(calm_json_bool(calm_json_get(row, "front"), !runs[at].front) == runs[at].front, "run %s",
                      runs[at].key);
        found++;
    }
    ck_assert_uint_eq(found, n);
    calm_json_free(root);
    /* With a run, only runs with its test are listed. */
    const char *csv = inspect_shown(path, "rate", test_format("%lld", (long long)before + 7), NULL, CALM_INSPECT_CSV);
    ck_has(csv, "model,run,result,scheme,bytes,kl,one_minus_cosine,ppl,front,bits_per_weight,top1,format,windows,");
    ck_has(csv, ",rtn,\"q3_k, q4_k\",100,0.001,,9,true,4,0.5,gguf,30,512,test.txt\r\n");
    ck_lacks(csv, ",20,512,");
}
END_OF_TEST

int main(void)
{
    return run_tests("inspect_rate", (const TTest *[]){front_of_each_test, NULL});
}
