/* Settings of latent attention and of DeepSeek's routers: the meaning of each key of config.json, and refusals. */
#include <stdlib.h>

#include "ptq/base/file.h"
#include "ptq/arch/arch.h"
#include "ptq/arch/kind.h"
#include "tests/support/config_cases.h"
#include "ptq/model/model.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

static const char *const families[] = {"deepseek_v2", "deepseek_v3", "glm4_moe_lite"};
#define EACH(f) for (size_t f = 0; f < sizeof families / sizeof *families; f++)

TEST(sizes)
{
    EACH(f) {
        const calm_config config = config_with(families[f], "qk_nope_head_dim", "6");
        const calm_latent_config *latent = &config.latent;
        ck_assert(latent->rope == 16 && config.rope[CALM_ROPE_GLOBAL].rotary == 16 && config.rope[0].neighbours);
        ck_assert(config.head_dim == 6 + 16 && config.n_kv == config.n_heads);
        ck_assert(!latent->q_rank == (f == 0));
        for (size_t i = 0; i < config.n_blocks; i++)
            ck_assert_ptr_eq(calm_kind_at(&config, i, CALM_SUBLAYER_ATTENTION), &calm_kind_mla);
        ck_assert_uint_eq(config_with(families[f], "q_lora_rank", "17").latent.q_rank, 17);
        ck_assert_uint_eq(config_with(families[f], "q_lora_rank", "null").latent.q_rank, 0);
        ck_assert_uint_eq(config_with(families[f], "head_dim", NULL).latent.rope, 16);
    }
}
END_OF_TEST

TEST(sizes_that_are_missing_or_wrong)
{
    static const char *const keys[] = {"kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"};
    EACH(f) {
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
            config_refuses(families[f], keys[i], NULL, CALM_EFORMAT, keys[i]);
            config_refuses(families[f], keys[i], "0", CALM_EFORMAT, keys[i]);
            config_refuses(families[f], keys[i], "1e3", CALM_EFORMAT, keys[i]);
            config_refuses(families[f], keys[i], "16777217", CALM_EFORMAT, keys[i]);
        }
        config_refuses(families[f], "q_lora_rank", NULL, CALM_EFORMAT,
                       "\"q_lora_rank\": expected a number or null, found nothing");
        config_refuses(families[f], "q_lora_rank", "0", CALM_EFORMAT, "q_lora_rank");
        config_refuses(families[f], "head_dim", "24", CALM_EFORMAT,
                       "\"head_dim\": expected 16 (qk_rope_head_dim), found 24");
        config_refuses(families[f], "qk_nope_head_dim", "16777216", CALM_EFORMAT, "4 heads of");
        config_refuses(families[f], "num_key_value_heads", "2", CALM_EFORMAT,
                       "\"num_key_value_heads\": expected 4 (num_attention_heads), found 2");
        ck_assert_uint_eq(config_with(families[f], "qk_head_dim", "7").head_dim, 28);    /* no code reads it */
        ck_assert_uint_eq(config_with(families[f], "num_key_value_heads", "3").n_kv, 4);    /* nor this key */
    }
}
END_OF_TEST

/* m(s) = 0.1 s ln(factor) + 1 (arXiv 2309.00071): scores are multiplied by the square of that for mscale_all_dim, by
 * which cos and sin are divided. */
TEST(scales_of_yarn)
{
    const calm_config plain = config_with("deepseek_v3", "rope_scaling", "null");
    const calm_config both = config_with("deepseek_v3", "rope_scaling", "{\"type\": \"yarn\", \"factor\": 8, "
                                         "\"mscale\": 0.5, \"mscale_all_dim\": 2, "
                                         "\"original_max_position_embeddings\": 64}");
    const calm_config all = config_with("deepseek_v3", "rope_scaling", "{\"type\": \"yarn\", \"factor\": 8, "
                                        "\"mscale_all_dim\": 2, \"original_max_position_embeddings\": 64}");
    const calm_config linear = config_with("deepseek_v3", "rope_scaling",
                                           "{\"type\": \"linear\", \"factor\": 8, \"mscale_all_dim\": 2}");
    const double usual = 1 / sqrt(28.0), one = 0.1 * log(8) + 1, two = 0.2 * log(8) + 1, half = 0.05 * log(8) + 1;
    ck_assert_double_eq_tol((double)plain.attention_scale, usual, 1e-7);
    ck_assert_double_eq_tol((double)both.attention_scale, usual * two * two, 1e-6);
    ck_assert_double_eq_tol(both.rope[0].m, half / two, 1e-12);
    ck_assert_double_eq_tol((double)all.attention_scale, usual * two * two, 1e-6);
    ck_assert_double_eq_tol(all.rope[0].m, one, 1e-12);
    ck_assert_double_eq_tol((double)linear.attention_scale, usual * two * two, 1e-6);
}
END_OF_TEST

TEST(order_of_channels_and_biases)
{
    ck_assert(!config_with("deepseek_v3", "rope_interleave", "false").rope[0].neighbours);
    config_refuses("deepseek_v2", "rope_interleave", "false", CALM_EUNSUPPORTED, "\"rope_interleave\": found false");
    EACH(f) {
        const calm_config config = config_with(families[f], "attention_bias", "true");
        const calm_config *block = calm_config_at(&config, 0);
        ck_assert(block->bias[CALM_ROLE_Q_A] && block->bias[CALM_ROLE_KV_A] && block->bias[CALM_ROLE_O]);
        ck_assert(!block->bias[CALM_ROLE_Q_FULL] && !block->bias[CALM_ROLE_Q_B] && !block->bias[CALM_ROLE_KV_B]);
    }
    /* Biases of the MLP and the shared expert, but not of routed experts. */
    const calm_config biased = config_with("deepseek_v2", "mlp_bias", "true");
    ck_assert(calm_config_at(&biased, 0)->bias[CALM_ROLE_DOWN] && calm_config_at(&biased, 0)->bias[CALM_ROLE_GATE]);
    ck_assert(biased.moe.shared_bias && !biased.moe.bias && !config_with("deepseek_v2", "_", NULL).moe.shared_bias);
}
END_OF_TEST

TEST(routers)
{
    const calm_config v2 = config_with("deepseek_v2", "n_routed_experts", "6"),
                      v3 = config_with("deepseek_v3", "n_routed_experts", "6");
    ck_assert(v2.moe.score == CALM_ROUTER_SOFTMAX && !v2.moe.choice_bias && !v2.moe.norm_top_k && v2.moe.group_by_max);
    ck_assert(v3.moe.score == CALM_ROUTER_SIGMOID && v3.moe.choice_bias && v3.moe.norm_top_k && !v3.moe.group_by_max);
    ck_assert(v2.moe.scale == 1.5f && v3.moe.scale == 1.5f && v2.moe.n_groups == 1);
    config_refuses("deepseek_v2", "topk_method", "\"noaux_tc\"", CALM_EUNSUPPORTED,
                   "\"topk_method\": found \"noaux_tc\"");
    config_refuses("deepseek_v2", "norm_topk_prob", "true", CALM_EUNSUPPORTED, "\"norm_topk_prob\": found true");
    config_refuses("deepseek_v3", "scoring_func", "\"softmax\"", CALM_EUNSUPPORTED,
                   "\"scoring_func\": found \"softmax\"");
    config_refuses("deepseek_v3", "n_group", "2", CALM_EFORMAT, "5 experts in 2 groups");
    config_refuses("deepseek_v3", "moe_layer_freq", "2", CALM_EUNSUPPORTED, "\"moe_layer_freq\": found 2");
    static const char *const needed[] = {"n_routed_experts", "moe_intermediate_size"};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        config_refuses("deepseek_v3", needed[i], NULL, CALM_EFORMAT, needed[i]);
    /* The classes' defaults. */
    ck_assert(config_with("deepseek_v3", "routed_scaling_factor", NULL).moe.scale == 2.5f);
    ck_assert(config_with("deepseek_v2", "routed_scaling_factor", NULL).moe.scale == 1);
    ck_assert(config_with("deepseek_v3", "norm_topk_prob", NULL).moe.norm_top_k);
    ck_assert(!config_with("deepseek_v2", "norm_topk_prob", NULL).moe.norm_top_k);
    const calm_config shared[] = {config_with("deepseek_v3", "n_shared_experts", NULL),
                                  config_with("deepseek_v2", "n_shared_experts", NULL)};
    ck_assert_uint_eq(shared[0].moe.shared_inner, shared[0].moe.inner);
    ck_assert_uint_eq(shared[1].moe.shared_inner, 2 * shared[1].moe.inner);
    ck_assert(!config_with("deepseek_v3", "first_k_dense_replace", NULL).moe.sparse[1]);
    ck_assert(config_with("deepseek_v2", "first_k_dense_replace", NULL).moe.sparse[0]);
    config_refuses("deepseek_v3", "n_group", NULL, CALM_EFORMAT, "5 experts in 8 groups");
    ck_assert_double_eq_tol((double)config_with("glm4_moe_lite", "routed_scaling_factor", NULL).moe.scale, 1.8, 1e-6);
}
END_OF_TEST

TEST(which_blocks_are_mixtures)
{
    const calm_config dense = config_with("deepseek_v3", "first_k_dense_replace", "1"),
                      listed = config_with("glm4_moe_lite", "mlp_layer_types", "[\"sparse\", \"dense\"]"),
                      usual = config_with("glm4_moe_lite", "mlp_layer_types", NULL);
    ck_assert(!dense.moe.sparse[0] && dense.moe.sparse[1]);
    ck_assert(listed.moe.sparse[0] && !listed.moe.sparse[1]);
    ck_assert(!usual.moe.sparse[0] && usual.moe.sparse[1]);
    config_refuses("glm4_moe_lite", "mlp_layer_types", "[\"sparse\"]", CALM_EFORMAT,
                   "\"mlp_layer_types\": 1 entries, expected 2 (num_hidden_layers)");
    config_refuses("glm4_moe_lite", "mlp_layer_types", "[\"sparse\", \"mlp\"]", CALM_EUNSUPPORTED,
                   "\"mlp_layer_types\"[1]: found \"mlp\", expected dense or sparse");
}
END_OF_TEST

/* A size that disagrees with a tensor: the message has the tensor, its shape and the key. */
TEST(sizes_that_tensors_do_not_have)
{
    static const struct {
        const char *key, *value, *words;
    } rows[] = {{"kv_lora_rank", "18", "kv_a_proj_with_mqa.weight: shape [32, 32], expected [34, 32]"},
                {"kv_lora_rank", "18", ": kv_lora_rank + qk_rope_head_dim: "},
                {"q_lora_rank", "30", "q_a_proj.weight: shape [32, 32], expected [30, 32]"},
                {"q_lora_rank", "30", ": q_lora_rank: "},
                {"v_head_dim", "6", ": kv_lora_rank, and num_attention_heads of qk_nope_head_dim + v_head_dim: "},
                {"qk_nope_head_dim", "6", ": q_lora_rank, and num_attention_heads of qk_nope_head_dim + "
                                          "qk_rope_head_dim: "}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tiny_model spec = tiny_of("deepseek_v3");
        const char *dir = tiny_model_write(&spec);
        calm_model *model;
        calm_json *json;
        calm_text text;
        const char *path = test_format("%s/config.json", dir);
        ck_ok(calm_json_read(ctx, path, 1 << 20, &json));
        calm_json_set_int(json, rows[i].key, atoll(rows[i].value));
        calm_text_init(&text);
        ck_ok(calm_json_write(ctx, json, 0, &text));
        ck_ok(calm_write_file(ctx, path, text.data, text.length));
        calm_text_clear(&text);
        calm_json_free(json);
        ck_fails(calm_model_open(ctx, dir, &model), CALM_EFORMAT, rows[i].words);
    }
}
END_OF_TEST

/* Kimi-K2 is DeepSeek-V3 with another model_type. */
TEST(names)
{
    ck_assert_str_eq(calm_arch_find(NULL, "kimi_k2")->name, "deepseek_v3");
    ck_assert_str_eq(calm_arch_find("DeepseekV3ForCausalLM", "kimi_k2")->name, "deepseek_v3");
    ck_assert(calm_arch_is_headless(calm_arch_find("DeepseekV3Model", NULL), "DeepseekV3Model"));
}
END_OF_TEST

int main(void)
{
    return run_tests("config_latent",
                     (const TTest *[]){sizes, sizes_that_are_missing_or_wrong, scales_of_yarn,
                                       order_of_channels_and_biases, routers, which_blocks_are_mixtures,
                                       sizes_that_tensors_do_not_have, names, NULL});
}
