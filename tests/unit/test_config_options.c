/* Options of the dense families: the meaning of each setting of config.json, and refusals. */
#include "ptq/arch/arch.h"
#include "tests/support/config_cases.h"
#include "tests/support/harness.h"

#define FULL  "\"full_attention\""
#define SLIDE "\"sliding_attention\""

/* ---- rotary embedding ---- */

TEST(blocks_without_rope)
{
    const calm_config list = config_with("smollm3", "no_rope_layers", "[0, 1, 1]"),
                      pattern = config_with("smollm3", "no_rope_layer_interval", "1"),
                      cohere = config_with("cohere2", "layer_types", "[" FULL ", " SLIDE "]"),
                      exaone = config_with("exaone4", "layer_types", "[" FULL ", " SLIDE "]");
    ck_assert(list.no_rope[0] && !list.no_rope[1]);
    ck_assert(pattern.no_rope[0] && pattern.no_rope[1]);
    ck_assert(cohere.no_rope[0] && !cohere.no_rope[1] && cohere.window[1] == 4096);
    ck_assert(exaone.no_rope[0] && !exaone.no_rope[1]);
    /* If no block slides all blocks have rotary embeddings. */
    const calm_config none = config_with("exaone4", "sliding_window", "null");
    ck_assert(!none.no_rope[0] && !none.no_rope[1] && none.window[0] == 0);
    config_refuses("smollm3", "no_rope_layers", "[1]", CALM_EFORMAT, "\"no_rope_layers\": 1 entries, expected 2");
    config_refuses("smollm3", "no_rope_layers", "[1, 2]", CALM_EFORMAT, "\"no_rope_layers\"[1]: expected 0 or 1");
    config_refuses("smollm3", "no_rope_layers", "{}", CALM_EFORMAT, "\"no_rope_layers\"");
    config_refuses("smollm3", "no_rope_layer_interval", "0", CALM_EFORMAT, "no_rope_layer_interval");
}
END_OF_TEST

/* ---- mixtures ---- */

/* Classes without norm_topk_prob divide weights, or do not, whatever a file says. */
TEST(weights_that_no_key_divides)
{
    static const char *const divided[] = {"mixtral", "minimax_m2", "granitemoe", "ernie4_5_moe", "gpt_oss",
                                          "qwen3_5_moe"};
    for (size_t i = 0; i < sizeof divided / sizeof *divided; i++)
        ck_assert(config_with(divided[i], "norm_topk_prob", "false").moe.norm_top_k);
    ck_assert(!config_with("glm4_moe", "norm_topk_prob", "false").moe.norm_top_k);
    ck_assert(!config_with("olmoe", "norm_topk_prob", "false").moe.norm_top_k);
    /* Sparsemixer has two rounds, one per expert, whatever the key says. */
    ck_assert_uint_eq(config_with("phimoe", "num_experts_per_tok", "1").moe.top_k, 2);
    ck_assert_uint_eq(config_with("phimoe", "num_experts_per_tok", "3").moe.top_k, 2);
}
END_OF_TEST

/* A missing key has the class's default; null turns the setting off. */
TEST(switches_that_are_null)
{
    ck_assert(config_with("deepseek_v3", "rope_interleave", NULL).rope[0].neighbours);
    ck_assert(!config_with("deepseek_v3", "rope_interleave", "null").rope[0].neighbours);
    ck_assert(!config_with("glm4_moe", "norm_topk_prob", "null").moe.norm_top_k);
    ck_assert(!config_with("granitemoehybrid", "mamba_conv_bias", "null").mamba.conv_bias);
    ck_assert(!config_with("starcoder2", "use_bias", "null").bias[CALM_ROLE_Q]);
    ck_assert(config_with("starcoder2", "use_bias", NULL).bias[CALM_ROLE_Q]);
}
END_OF_TEST

/* A list whose length is not the number of blocks. */
TEST(layer_types)
{
    static const char *const families[] = {"smollm3", "olmo3", "exaone4", "cohere2", "qwen3", "gemma3"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        config_refuses(families[i], "layer_types", "[" FULL "]", CALM_EFORMAT,
                       "\"layer_types\": 1 entries, expected 2 (num_hidden_layers)");
        config_refuses(families[i], "layer_types", "[" FULL ", " FULL ", " FULL "]", CALM_EFORMAT,
                       "\"layer_types\": 3 entries, expected 2 (num_hidden_layers)");
        config_refuses(families[i], "layer_types", "[" FULL ", \"linear_attention\"]", CALM_EUNSUPPORTED,
                       "\"layer_types\"[1]: \"linear_attention\"");
    }
    /* Without a list three blocks of four slide. */
    const calm_config olmo = config_with("olmo3", "num_hidden_layers", "5");
    ck_assert(olmo.window[2] == 4096 && olmo.window[3] == 0 && olmo.window[4] == 4096);
    ck_assert(olmo.local_rope[0] && !olmo.local_rope[3]);
    config_refuses("cohere2", "sliding_window_pattern", "0", CALM_EFORMAT, "sliding_window_pattern");
    config_refuses("exaone4", "sliding_window_pattern", "\"LLLG\"", CALM_EFORMAT, "sliding_window_pattern");
}
END_OF_TEST

TEST(rope_settings)
{
    const calm_config olmo = config_with("olmo3", "rope_scaling",
                                         "{\"rope_type\": \"linear\", \"factor\": 4, \"rope_theta\": 100}");
    ck_assert(olmo.rope[CALM_ROPE_GLOBAL].kind == CALM_ROPE_LINEAR && olmo.rope[CALM_ROPE_GLOBAL].theta == 100);
    ck_assert(olmo.rope[CALM_ROPE_LOCAL].kind == CALM_ROPE_DEFAULT && olmo.rope[CALM_ROPE_LOCAL].theta == 500000);
    config_refuses("olmo3", "rope_scaling", "{\"type\": \"linear\", \"factor\": 4}", CALM_EUNSUPPORTED,
                   "found \"type\" \"linear\", expected \"rope_type\"");
    config_refuses("gemma3", "rope_scaling", "{\"type\": \"linear\", \"factor\": 4}", CALM_EUNSUPPORTED,
                   "expected \"rope_type\"");
    config_refuses("olmo3", "rope_parameters", "{\"rope_theta\": 1e4}", CALM_EUNSUPPORTED, "\"full_attention\"");
    /* The number of rotated channels and their share, 4 of 8, must agree. */
    ck_assert_uint_eq(config_with("minimax_m2", "partial_rotary_factor", "0.5").rope[0].rotary, 4);
    config_refuses("minimax_m2", "partial_rotary_factor", "0.75", CALM_EUNSUPPORTED,
                   "\"rotary_dim\": expected 6 (partial_rotary_factor of head_dim), found 4");
    /* alpha^(d / (d - 2)), d = 8. */
    const calm_config hunyuan = config_with("hunyuan_v1_dense", "rope_scaling",
                                            "{\"type\": \"dynamic\", \"alpha\": 64, \"factor\": 1}");
    ck_assert(hunyuan.rope[CALM_ROPE_GLOBAL].kind == CALM_ROPE_DEFAULT);
    ck_near(hunyuan.rope[CALM_ROPE_GLOBAL].theta, 10000 * 256, 1e-6);
    ck_assert_uint_eq(config_with("glm4", "partial_rotary_factor", NULL).rope[CALM_ROPE_GLOBAL].rotary, 4);
    ck_assert(config_with("glm4", "_", NULL).rope[CALM_ROPE_GLOBAL].neighbours);
    ck_assert(config_with("cohere2", "_", NULL).rope[CALM_ROPE_GLOBAL].neighbours);
    ck_assert(!config_with("llama", "_", NULL).rope[CALM_ROPE_GLOBAL].neighbours);
    config_refuses("ministral3", "rope_parameters", NULL, CALM_EFORMAT, "rope_parameters");
    config_refuses("ministral3", "rope_parameters", "{\"original_max_position_embeddings\": 9}", CALM_EFORMAT,
                   "llama_4_scaling_beta");
    config_refuses("llama", "rope_parameters", "{\"llama_4_scaling_beta\": 0.1}", CALM_EUNSUPPORTED,
                   "llama_4_scaling_beta");
}
END_OF_TEST

/* ---- biases and multipliers ---- */

TEST(biases)
{
    const calm_config seed = config_with("seed_oss", "attention_out_bias", "true"),
                      ernie = config_with("ernie4_5", "use_bias", "true"),
                      star = config_with("starcoder2", "use_bias", NULL),
                      glm = config_with("glm4", "attention_bias", "false"),
                      smol = config_with("smollm3", "mlp_bias", "true");
    ck_assert(seed.bias[CALM_ROLE_Q] && seed.bias[CALM_ROLE_O] && !seed.bias[CALM_ROLE_UP]);
    ck_assert(ernie.bias[CALM_ROLE_O] && ernie.bias[CALM_ROLE_DOWN]);
    ck_assert(star.bias[CALM_ROLE_K] && star.bias[CALM_ROLE_UP]);
    ck_assert(!glm.bias[CALM_ROLE_Q] && config_with("glm4", "_", NULL).bias[CALM_ROLE_V] && !glm.bias[CALM_ROLE_O]);
    ck_assert(!smol.bias[CALM_ROLE_Q] && smol.bias[CALM_ROLE_DOWN]);
    const calm_config experts = config_with("ernie4_5_moe", "use_bias", "true"),
                      single = config_with("nemotron_h", "mlp_bias", "true");
    ck_assert(experts.bias[CALM_ROLE_Q] && experts.moe.shared_bias && experts.head_bias && !experts.moe.bias);
    ck_assert(single.moe.shared_bias && !single.bias[CALM_ROLE_Q]);
}
END_OF_TEST

/* Other names of a key that transformers' classes accept. */
TEST(other_names)
{
    ck_assert_uint_eq(config_with("mixtral", "num_experts", "5").moe.n_experts, 5);
    config_refuses("mixtral", "num_experts", "4", CALM_EFORMAT,
                   "\"num_experts\": found 4, expected the 5 of \"num_local_experts\", of which it is another name");
    ck_assert_uint_eq(config_with("olmoe", "num_local_experts", "null").moe.n_experts, 5);
    config_with("distilbert", "hidden_size", "32");
    config_with("glm4_moe", "num_mtp_layers", "1");
    config_refuses("nemotron_h", "mamba_n_groups", "99", CALM_EFORMAT, "of \"n_groups\", of which it is another name");
    config_refuses("llama", "num_mtp_layers", "1", CALM_EUNSUPPORTED, "num_mtp_layers");
}
END_OF_TEST

TEST(names_of_gelu)
{
    static const char *const names[] = {"gelu_new", "gelu_fast", "gelu_accurate", "gelu_python_tanh",
                                        "gelu_pytorch_tanh"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        ck_assert_int_eq(config_with("llama", "hidden_act", test_format("\"%s\"", names[i])).activation,
                         CALM_ACTIVATION_GELU_TANH);
    ck_assert_int_eq(config_with("llama", "hidden_act", "\"relu2\"").activation, CALM_ACTIVATION_RELU2);
    ck_assert_int_eq(config_with("llama", "hidden_act", "\"gelu\"").activation, CALM_ACTIVATION_GELU);
}
END_OF_TEST

TEST(multipliers)
{
    const calm_config granite = config_with("granite", "logits_scaling", "4"),
                      silent = config_with("granite", "residual_multiplier", NULL),
                      cohere = config_with("cohere2", "logit_scale", NULL);
    ck_assert(granite.logit_scale == .25f && granite.residual_scale == .6f && granite.attention_scale == .3f);
    ck_assert(silent.residual_scale == 1 && cohere.logit_scale == .0625f && cohere.residual_scale == 0);
    config_refuses("granite", "logits_scaling", "0", CALM_EFORMAT, "logits_scaling");
    config_refuses("granitemoe", "embedding_multiplier", "\"a\"", CALM_EFORMAT, "embedding_multiplier");
    config_refuses("llama", "residual_multiplier", "0.5", CALM_EUNSUPPORTED, "residual_multiplier");
}
END_OF_TEST

/* ---- other settings of published files ---- */

TEST(fixed_settings)
{
    config_with("cohere2", "use_parallel_block", "true");
    config_with("cohere2", "rotary_pct", "1.0");
    config_with("hunyuan_v1_dense", "use_cla", "false");
    config_with("starcoder2", "mlp_type", "null");
    config_refuses("cohere2", "use_parallel_block", "false", CALM_EUNSUPPORTED,
                   "\"use_parallel_block\": found false, expected true");
    config_refuses("cohere2", "rotary_pct", "0.5", CALM_EUNSUPPORTED, "\"rotary_pct\": found 0.5, expected 1");
    config_refuses("cohere2", "use_qk_norm", "true", CALM_EUNSUPPORTED, "use_qk_norm");
    config_refuses("starcoder2", "mlp_type", "\"gated\"", CALM_EUNSUPPORTED, "\"mlp_type\": found \"gated\"");
    config_refuses("minimax_m2", "scoring_func", "[1]", CALM_EUNSUPPORTED, "\"scoring_func\": found [1]");
}
END_OF_TEST

/* null means hidden / heads, even if the class has a default. */
TEST(widths_of_heads)
{
    ck_assert_uint_eq(config_with("seed_oss", "head_dim", NULL).head_dim, 128);
    ck_assert_uint_eq(config_with("seed_oss", "head_dim", "null").head_dim, 8);
    ck_assert_uint_eq(config_with("ernie4_5", "head_dim", "null").head_dim, 8);
    ck_assert_uint_eq(config_with("cohere2", "head_dim", "16").head_dim, 16);
}
END_OF_TEST

int main(void)
{
    return run_tests("config_options", (const TTest *[]){blocks_without_rope, weights_that_no_key_divides,
                                                         switches_that_are_null, layer_types,
                                                         rope_settings, biases, other_names, names_of_gelu,
                                                         multipliers, fixed_settings,
                                                         widths_of_heads, NULL});
}
