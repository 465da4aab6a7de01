/* Targets of quantization entries for readers whose module names differ from the checkpoint's. */
#include "ptq/export/module_names.h"

#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_plan.h"

static bool always(const void *unused, const calm_plan_job *job)
{
    (void)unused;
    (void)job;
    return true;
}

/* Selects the second block only. */
static bool second(const void *first, const calm_plan_job *job)
{
    return job >= (const calm_plan_job *)first;
}

static const char *found[16];
static size_t n_found;

static void keep(void *user, const char *regex)
{
    (void)user;
    ck_assert_uint_lt(n_found, 16);
    found[n_found++] = test_format("%s", regex);
}

static void list(const char *family, bool half)
{
    const tiny_model spec = tiny_of(family);
    tiny_plan p;
    tiny_plan_open(&p, tiny_model_write(&spec));
    const calm_export_input input = {.model = p.model, .plan = &p.plan};
    n_found = 0;
    calm_module_regexes(&input, half ? second : always, p.plan.jobs + calm_model_layout(p.model)->block_begin[1], keep,
                        NULL);
    calm_model_close(p.model);
}

TEST(names_of_both)
{
    list("gte", false);
    ck_assert_uint_eq(n_found, 4);
    ck_assert_str_eq(found[0], "((\\w*\\.)*encoder\\.layer\\.\\d+\\.attention\\.qkv_proj|"
                               "(\\w+\\.)?layers\\.\\d+\\.self_attn\\.(q_proj|k_proj|v_proj|qkv_proj)|"
                               "(\\w*\\.)*encoder\\.layer\\.\\d+\\.attention\\.qkv_proj)$");
    ck_assert_str_eq(found[3], "((\\w*\\.)*encoder\\.layer\\.\\d+\\.mlp\\.down_proj|"
                               "(\\w+\\.)?layers\\.\\d+\\.mlp\\.down_proj|"
                               "(\\w*\\.)*encoder\\.layer\\.\\d+\\.mlp\\.down_proj)$");
    list("nomic_bert", true);
    ck_assert_str_eq(found[1], "((\\w*\\.)*encoder\\.layers\\.(1)\\.attn\\.out_proj|"
                               "(\\w+\\.)?layers\\.(1)\\.self_attn\\.o_proj|"
                               "(\\w*\\.)*encoder\\.layer\\.(1)\\.attention\\.dense)$");
}
END_OF_TEST

TEST(names_of_one)
{
    list("modernbert", false);
    ck_assert_str_eq(found[0], "(\\w*\\.)*layers\\.\\d+\\.attn\\.Wqkv$");
    list("roberta", true);
    ck_assert_str_eq(found[0], "(\\w*\\.)*encoder\\.layer\\.(1)\\.(attention\\.self|attention\\.output)\\."
                               "(query|key|value)$");
    ck_assert_str_eq(found[1], "(\\w*\\.)*encoder\\.layer\\.(1)\\.attention\\.output\\.dense$");
    ck_assert_str_eq(found[3], "(\\w*\\.)*encoder\\.layer\\.(1)\\.output\\.dense$");
}
END_OF_TEST

/* vLLM's name of a parent is listed in addition to the checkpoint's, for its linears and for experts below it. */
TEST(names_of_engines)
{
    list("minimax_m2", false);
    ck_assert_uint_eq(n_found, 4);
    ck_assert_str_eq(found[2], "model\\.layers\\.\\d+\\.(block_sparse_moe|mlp)\\.experts\\.\\d+\\."
                               "(w1|w3|gate_up_proj)$");
    ck_assert_str_eq(found[3], "model\\.layers\\.\\d+\\.(block_sparse_moe|mlp)\\.experts\\.\\d+\\.w2$");
    list("mixtral", true);
    ck_assert_str_eq(found[3], "model\\.layers\\.(1)\\.block_sparse_moe\\.experts\\.\\d+\\.w2$");
    list("gpt_oss", false);
    ck_assert_str_eq(found[1], "model\\.layers\\.\\d+\\.(self_attn|attn)\\.o_proj$");
}
END_OF_TEST

int main(void)
{
    return run_tests("module_names", (const TTest *[]){names_of_both, names_of_one, names_of_engines, NULL});
}
