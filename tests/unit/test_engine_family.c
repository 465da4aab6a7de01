/* What vLLM's class of one family does otherwise than its other classes. */
#include "ptq/plan/engine_family.h"

#include "tests/support/harness.h"

static calm_status check(const char *engine, const char *format, const char *family, bool expert, bool turns,
                         const char *name)
{
    calm_scheme scheme;
    ck_ok(calm_scheme_parse(ctx, name, &scheme));
    const calm_engine_own own = {"a.module", expert, turns, &scheme};
    return calm_engine_check_family(ctx, calm_engine_find(engine), format, family, &own);
}

TEST(experts_without_names)
{
    static const char *const engines[] = {"vllm", "vllm-cpu", "vllm-rocm"};
    for (int i = 0; i < 3; i++)
        ck_fails(check(engines[i], "compressed-tensors", "gpt_oss", true, false, "w4a16_g32"), CALM_EARG,
                 test_format("`target` %s does not read a.module of gpt_oss", engines[i]));
    ck_ok(check("vllm", "compressed-tensors", "gpt_oss", false, true, "w4a16_g32"));
    ck_ok(check("vllm", "compressed-tensors", "mixtral", true, false, "w4a16_g32"));
    ck_ok(check("transformers", "compressed-tensors", "gpt_oss", true, false, "w4a16_g32"));
}
END_OF_TEST

TEST(rows_that_move)
{
    ck_ok(check("vllm", "compressed-tensors", "llama4", false, true, "w4a16_g32"));
    ck_ok(check("vllm", "compressed-tensors", "llama4", false, true, "fp8"));
    ck_fails(check("vllm", "compressed-tensors", "llama4", false, true, "w4a16_g32_asym"), CALM_EARG,
             "moves the rows of q and k");
    ck_fails(check("vllm", "compressed-tensors", "llama4", false, true, "fp8_block"), CALM_EARG, "a.module");
    ck_fails(check("vllm", "gptq", "llama4", false, true, "w4a16_g32"), CALM_EARG, "compressed-tensors alone");
    ck_ok(check("vllm", "gptq", "llama4", false, false, "w4a16_g32"));
    ck_ok(check("vllm", "gptq", "llama", false, true, "w4a16_g32"));
    ck_ok(check("sglang", "gptq", "llama4", false, true, "w4a16_g32"));
}
END_OF_TEST

int main(void)
{
    return run_tests("engine_family", (const TTest *[]){experts_without_names, rows_that_move, NULL});
}
