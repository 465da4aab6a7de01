/* What an engine's class of a family does differently from its other classes. */
#include "ptq/plan/engine_family.h"

#include "tests/support/harness.h"

static calm_status check(const char *engine, const char *format, const char *family, bool expert, bool turns,
                         const char *name)
{
    calm_scheme scheme;
    ck_ok(calm_scheme_parse(ctx, name, &scheme));
    const calm_engine_job own = {"a.module", expert, turns, &scheme};
    return calm_engine_check_family(ctx, calm_engine_find(engine), format, family, &own);
}

static calm_status check_encoder(const char *engine, const char *family, const char *module, const char *name)
{
    calm_scheme scheme;
    ck_ok(calm_scheme_parse(ctx, name, &scheme));
    const calm_engine_job own = {module, false, true, &scheme};
    return calm_engine_check_family(ctx, calm_engine_find(engine), "compressed-tensors", family, &own);
}

/* As observed with transformers 5.23 (tests/readers/field_families.py). */
TEST(parts_that_are_not_read)
{
    static const struct {
        const char *scheme, *split, *modernbert;    /* the tensor that stops it; NULL: it is read */
    } cases[] = {{"w4a16_g32", "weight_shape", "weight_packed"}, {"w8a16", "weight_shape", "weight_packed"},
                 {"w8a8", NULL, NULL},                           {"w8a8_symact", NULL, NULL},
                 {"w8a8_static", "input_scale", NULL},           {"fp8", NULL, NULL},
                 {"fp8_static", "input_scale", NULL},            {"nvfp4", "weight_global_scale", "weight_packed"},
                 {"mxfp4", NULL, "weight_packed"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static const char *const modules[][2] = {
            {"gte", "encoder.layer.0.attention.qkv_proj"}, {"gte", "encoder.layer.0.mlp.up_gate_proj"},
            {"nomic_bert", "encoder.layers.0.attn.Wqkv"}, {"modernbert", "layers.0.attn.Wo"}};
        for (size_t m = 0; m < 4; m++) {
            const char *family = modules[m][0], *module = modules[m][1];
            const char *part = m == 3 ? cases[i].modernbert : cases[i].split;
            calm_status status = check_encoder("transformers", family, module, cases[i].scheme);
            if (part)
                ck_fails(status, CALM_EARG, test_format("does not read %s.%s of %s", module, part, family));
            else
                ck_ok(status);
            ck_ok(check_encoder("vllm", family, module, cases[i].scheme));
            ck_ok(check_encoder("any", family, module, cases[i].scheme));
        }
        ck_ok(check_encoder("transformers", "gte", "encoder.layer.0.attention.o_proj", cases[i].scheme));
        ck_ok(check_encoder("transformers", "phi3", "model.layers.0.self_attn.qkv_proj", cases[i].scheme));
    }
}
END_OF_TEST

TEST(experts_without_names)
{
    static const char *const engines[] = {"vllm", "vllm-cpu", "vllm-rocm"};
    for (int i = 0; i < 3; i++)
        ck_fails(check(engines[i], "compressed-tensors", "gpt_oss", true, false, "w4a16_g32"), CALM_EARG,
                 test_format("`target` %s does not read a.module of gpt_oss", engines[i]));
    ck_ok(check("vllm", "compressed-tensors", "gpt_oss", false, true, "w4a16_g32"));
    ck_ok(check("vllm", "compressed-tensors", "mixtral", true, false, "w4a16_g32"));
    static const char *const whole[] = {"gpt_oss", "gemma4", "granitemoe", "granitemoehybrid"};
    for (int i = 0; i < 4; i++) {
        ck_fails(check("transformers", "compressed-tensors", whole[i], true, false, "w4a16_g32"), CALM_EARG,
                 test_format("`target` transformers does not read a.module of %s", whole[i]));
        ck_ok(check("transformers", "compressed-tensors", whole[i], false, true, "w4a16_g32"));
        ck_ok(check("sglang", "compressed-tensors", whole[i], true, false, "w4a16_g32"));
    }
    ck_ok(check("transformers", "compressed-tensors", "mixtral", true, false, "w4a16_g32"));
}
END_OF_TEST

TEST(rows_that_move)
{
    ck_ok(check("vllm", "compressed-tensors", "llama4", false, true, "w4a16_g32"));
    ck_ok(check("vllm", "compressed-tensors", "llama4", false, true, "fp8"));
    ck_fails(check("vllm", "compressed-tensors", "llama4", false, true, "w4a16_g32_asym"), CALM_EARG,
             "moves the rows of q and k");
    ck_fails(check("vllm", "compressed-tensors", "llama4", false, true, "fp8_block"), CALM_EARG, "a.module");
    ck_fails(check("vllm", "gptq", "llama4", false, true, "w4a16_g32"), CALM_EARG, "in compressed-tensors");
    ck_ok(check("vllm", "gptq", "llama4", false, false, "w4a16_g32"));
    ck_ok(check("vllm", "gptq", "llama", false, true, "w4a16_g32"));
    ck_ok(check("sglang", "gptq", "llama4", false, true, "w4a16_g32"));
}
END_OF_TEST

int main(void)
{
    return run_tests("engine_family", (const TTest *[]){experts_without_names, rows_that_move,
                                                        parts_that_are_not_read, NULL});
}
