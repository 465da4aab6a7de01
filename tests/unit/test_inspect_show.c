/* calm inspect show: every section of a run. */
#include "ptq/io/json.h"
#include "tests/support/harness.h"
#include "tests/support/inspect_sample.h"

TEST(all_of_a_run)
{
    const char *path = inspect_sample(), *text = inspect_shown(path, "show", "1", NULL, CALM_INSPECT_TEXT);
    ck_has(text, "Run 1: qwen, finished\n");
    ck_has(text, "  verdict          no uniform run is better\n");
    ck_has(text, "  size_ratio       0.4000\n");
    ck_has(text, "  candidates       9\n  failed           1\n  choices          4\n");
    ck_has(text, "  architecture  Qwen3ForCausalLM\n");
    ck_has(text, "  window_tokens  512\n");
    ck_has(text, "  /algorithms/2/name  \"gptq-hls\"\n");
    ck_has(text, "  /empty              {}\n");
    ck_has(text, "  kernels  Haswell\n");
    ck_has(text, "  test  hybrid   12.5000");
    ck_has(text, "  ppl_ratio <= 1.05      1.02  yes\n");
    ck_has(text, "  out/model.safetensors  weights     77  abcd\n");
    text = inspect_shown(path, "show", NULL, NULL, CALM_INSPECT_TEXT);    /* the newest */
    ck_has(text, "Run 4: qwen, running\n");
    ck_has(text, "Gates\n  none\n");
}
END_OF_TEST

TEST(the_recipe_is_a_value_of_the_json)
{
    const char *path = inspect_sample(), *json = inspect_shown(path, "show", "2", NULL, CALM_INSPECT_JSON);
    static const char *const keys[] = {"run", "model", "calibration", "recipe", "environment", "chosen", "evaluations",
                                       "gates", "stages", "artifacts"};
    calm_json *root;
    ck_ok(calm_json_parse(ctx, "stdout", json, strlen(json), &root));
    ck_assert_uint_eq(calm_json_size(root), sizeof keys / sizeof *keys);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        ck_assert_int_eq(calm_json_typeof(calm_json_get(root, keys[i])), i == 3 ? CALM_JSON_OBJECT : CALM_JSON_ARRAY);
    ck_assert_int_eq(calm_json_int(calm_json_get(calm_json_get(root, "recipe"), "a/b~c"), 0), 4);
    calm_json_free(root);
    const char *csv = inspect_shown(path, "show", "2", NULL, CALM_INSPECT_CSV);
    ck_has(csv, "\r\n\r\nrecipe\r\npointer,value\r\n/scheme,\"\"\"w4a16_g128\"\"\"\r\n");
    ck_has(csv, "/a~1b~0c,4\r\n");
    ck_has(csv, "\r\n\r\nchosen\r\nalgorithm,scheme,jobs,weights\r\ngptq,w4a16_g128,3,24576\r\n");
}
END_OF_TEST

int main(void)
{
    return run_tests("inspect_show", (const TTest *[]){all_of_a_run, the_recipe_is_a_value_of_the_json, NULL});
}
