/* calm inspect diff prints what differs between runs, and nothing else. */
#include "ptq/io/json.h"
#include "tests/support/harness.h"
#include "tests/support/inspect_sample.h"

static const char *diff(const char *path, const char *a, const char *b, const char *metric, calm_inspect_form form)
{
    const char *args[] = {a, b}, *out;
    const calm_inspect_query query = {.what = "diff", .args = args, .n_args = 2, .metric = metric, .form = form};
    ck_ok(inspect_printed(path, &query, &out));
    return out;
}

TEST(all_that_differs)
{
    const char *csv = diff(inspect_sample(), "1", "2", NULL, CALM_INSPECT_CSV);
    ck_has(csv, "run\r\nname,first,second\r\nresult,hybrid,gptq\r\n"
                "verdict,no uniform run is better,uniform gptq is better\r\nrule,token,argmax\r\n"
                "metric,cka_token,rel_mse\r\nbytes_after,400,390\r\nversion,0.r1,0.r2\r\n\r\nrecipe\r\n");
    ck_has(csv, "pointer,first,second\r\n/algorithms/2/name,\"\"\"gptq-hls\"\"\",\r\n"
                "/choice/rule,\"\"\"token\"\"\",\"\"\"argmax\"\"\"\r\n"
                "/choice/metric,\"\"\"cka_token\"\"\",\"\"\"rel_mse\"\"\"\r\n/a~1b~0c,,4\r\n\r\n");
    ck_has(csv, "calibration\r\nname,first,second\r\nseed,,7\r\nkey,c1,c2\r\n\r\n");
    ck_has(csv, "environment\r\nname,first,second\r\nkernels,Haswell,Zen\r\n\r\n");
    ck_has(csv, "choices\r\nblock,job,first,second,unit\r\n"
                "0,down,rtn w4a16_g128,gptq w4a16_g128,model.layers.0.down\r\n"
                "1,qkv,gptq-hls w4a16_g128,gptq w4a16_g128,model.layers.1.qkv\r\n"
                "1,down,float,,model.layers.1.down\r\n\r\n");
    ck_has(csv, "0,qkv,rel_mse,0.001,0.0015,0.0005\r\n");
    ck_has(csv, "1,qkv,rel_mse,0.002,0.0015,-0.0005\r\n");
    ck_lacks(csv, "1,qkv,log_rel_mse");    /* -6 in both */
    ck_has(csv, "test,float,12.25,12.25,0,0,0.5,0.5,,,true\r\n");
    /* The results of these runs are the hybrid of the first and uniform gptq of the second. */
    ck_has(csv, "test,result,12.5,12.75,0.0125,0.025,0.5,0.5,,,true\r\n");
}
END_OF_TEST

TEST(the_other_way_round)
{
    const char *path = inspect_sample(), *csv = diff(path, "2", "1", NULL, CALM_INSPECT_CSV);
    ck_has(csv, "1,down,,float,model.layers.1.down\r\n");
    ck_has(csv, "/algorithms/2/name,,\"\"\"gptq-hls\"\"\"\r\n");
    csv = diff(path, "1", "2", "cka_token", CALM_INSPECT_CSV);
    ck_has(csv, "0,down,cka_token,0.002,0.0002,-0.0018");
    ck_lacks(csv, "0,down,rel_mse,");
}
END_OF_TEST

TEST(a_run_is_equal_to_itself)
{
    const char *path = inspect_sample();
    const char *text = diff(path, "1", "1", NULL, CALM_INSPECT_TEXT);
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, "no difference")); at++)
        n++;
    ck_assert_uint_eq(n, 6);
    calm_json *root;
    const char *json = diff(path, "1", "1", NULL, CALM_INSPECT_JSON);
    ck_ok(calm_json_parse(ctx, "stdout", json, strlen(json), &root));
    static const char *const keys[] = {"run", "recipe", "calibration", "environment", "choices", "scores"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        ck_assert_int_eq(calm_json_typeof(calm_json_get(root, keys[i])), CALM_JSON_ARRAY);
        ck_assert_uint_eq(calm_json_size(calm_json_get(root, keys[i])), 0);
    }
    ck_assert_uint_eq(calm_json_size(calm_json_get(root, "evaluations")), 2);
    calm_json_free(root);
}
END_OF_TEST

int main(void)
{
    return run_tests("inspect_diff",
                     (const TTest *[]){all_that_differs, the_other_way_round, a_run_is_equal_to_itself, NULL});
}
