/* The tensors of a checkpoint that the forward pass reads, by name. */
#include "ptq/model/tensor_use.h"

#include "tests/support/config_cases.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

/* Every tensor that tiny models have is read: test_model.c removes them one at a time. */
TEST(what_is_needed_is_read)
{
    for (size_t f = 0; tiny_families[f]; f++) {
        tiny_model spec = tiny_of(tiny_families[f]);
        spec.tied = spec.bias = f % 2;
        calm_model *model;
        CALM_SCOPED_TEXT(text);
        ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
        const calm_safetensors *set = calm_model_tensors(model);
        for (size_t i = 0; i < calm_safetensors_count(set); i++)
            ck_assert_msg(calm_model_tensor_use(model, calm_safetensors_at(set, i)->name) == CALM_TENSOR_READ,
                          "%s: %s is not read", tiny_families[f], calm_safetensors_at(set, i)->name);
        ck_assert_uint_eq(calm_model_list_use(model, CALM_TENSOR_FOREIGN, &text), 0);
        calm_model_close(model);
    }
}
END_OF_TEST

/* Two blocks with five experts, tied; nothing has a bias. */
TEST(everything_else_is_not)
{
    static const struct {
        const char *name;
        calm_tensor_use use;
    } cases[] = {{"lm_head.weight", CALM_TENSOR_COPY},
                 {"lm_head.bias", CALM_TENSOR_FOREIGN},
                 {"model.norm.weight", CALM_TENSOR_READ},
                 {"model.norm.bias", CALM_TENSOR_FOREIGN},
                 {"model.layers.0.input_layernorm.bias", CALM_TENSOR_FOREIGN},
                 {"model.layers.0.self_attn.q_proj.weight", CALM_TENSOR_READ},
                 {"model.layers.0.self_attn.q_proj.bias", CALM_TENSOR_FOREIGN},
                 {"model.layers.0.self_attn.q_proj.weight_scale", CALM_TENSOR_FOREIGN},
                 {"model.layers.0.self_attn.k_scale", CALM_TENSOR_FOREIGN},
                 {"model.layers.0.self_attn.q_norm.weight", CALM_TENSOR_READ},
                 {"model.layers.0.self_attn.rotary_emb.inv_freq", CALM_TENSOR_BUFFER},
                 {"model.rotary_emb.inv_freq", CALM_TENSOR_BUFFER},
                 {"model.layers.1.attn.masked_bias", CALM_TENSOR_BUFFER},
                 {"model.layers.1.attn.bias", CALM_TENSOR_BUFFER},
                 {"model.layers.1.mlp.gate.weight", CALM_TENSOR_READ},
                 {"model.layers.1.mlp.experts.4.up_proj.weight", CALM_TENSOR_READ},
                 {"model.layers.1.mlp.experts.5.up_proj.weight", CALM_TENSOR_FOREIGN},
                 {"model.layers.1.mlp.experts.4.up_proj.bias", CALM_TENSOR_FOREIGN},
                 {"model.layers.1.mlp.up_proj.weight", CALM_TENSOR_FOREIGN},
                 {"model.layers.2.mlp.up_proj.weight", CALM_TENSOR_BEYOND},
                 {"model.layers.22.self_attn.rotary_emb.inv_freq", CALM_TENSOR_BEYOND},
                 {"model.layers.01.input_layernorm.weight", CALM_TENSOR_FOREIGN},
                 {"model.layers.99999999999999999999.input_layernorm.weight", CALM_TENSOR_FOREIGN},
                 {"model.layers.x.input_layernorm.weight", CALM_TENSOR_FOREIGN},
                 {"layers.0.input_layernorm.weight", CALM_TENSOR_FOREIGN},
                 {"mtp.fc.weight", CALM_TENSOR_FOREIGN},
                 {"score.weight", CALM_TENSOR_FOREIGN},
                 {"", CALM_TENSOR_FOREIGN}};
    const calm_config config = config_with("qwen3_moe", "attention_bias", "false");
    calm_layout layout;
    ck_ok(calm_layout_build(ctx, &config, "model.", false, &layout));
    calm_config tied = config;
    tied.tied = true;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_msg(calm_tensor_use_of(&tied, &layout, "model.", cases[i].name) == cases[i].use, "%s: %d",
                      cases[i].name, (int)calm_tensor_use_of(&tied, &layout, "model.", cases[i].name));
    tied.tied = false;
    ck_assert_int_eq(calm_tensor_use_of(&tied, &layout, "model.", "lm_head.weight"), CALM_TENSOR_READ);
}
END_OF_TEST

int main(void)
{
    return run_tests("tensor_use", (const TTest *[]){what_is_needed_is_read, everything_else_is_not, NULL});
}
