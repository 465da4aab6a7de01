/* config.json of families whose blocks have several kinds of token mixers: which block has which, and their sizes. */
#include "ptq/families/mixers.h"

#include "tests/support/config_cases.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

static const char *const deltas[] = {"qwen3_5", "qwen3_5_moe", "qwen3_next"};
static const char *const convs[] = {"lfm2", "lfm2_moe"};

/* Returns "ad" for attention, then a delta net. */
static const char *mixers(const calm_config *config)
{
    const char *text = "";
    for (size_t i = 0; i < config->n_blocks; i++)
        text = test_format("%s%c", text, calm_kind_at(config, i, CALM_SUBLAYER_ATTENTION)->name[0]);
    return text;
}

TEST(kinds_of_blocks)
{
    for (size_t f = 0; f < 3; f++) {
        calm_config config = config_with(deltas[f], "_", "0");
        ck_assert_str_eq(mixers(&config), "da");
        ck_assert(config.output_gate && config.conv_width == 4 && config.delta.n_key_heads == 2);
        ck_assert(config.delta.n_value_heads == 4 && config.delta.key_dim == 16 && config.delta.value_dim == 8);
        config = config_with(deltas[f], "layer_types", "[\"full_attention\", \"linear_attention\"]");
        ck_assert_str_eq(mixers(&config), "ad");
        /* Every fourth block has attention, as published files also say. */
        config = config_with(deltas[f], "layer_types", NULL);
        ck_assert_str_eq(mixers(&config), "dd");
        config = config_with(deltas[f], "layer_types", "null");
        ck_assert_str_eq(mixers(&config), "dd");
        config = config_with(deltas[f], "full_attention_interval", "1");
        ck_assert_str_eq(mixers(&config), "da");    /* the list has precedence */
    }
    for (size_t f = 0; f < 2; f++) {
        calm_config config = config_with(convs[f], "_", "0");
        ck_assert_str_eq(mixers(&config), "ca");
        ck_assert(!config.output_gate && config.conv_width == 4);
    }
    const calm_config config = config_with("lfm2", "layer_types", NULL);
    ck_assert_str_eq(mixers(&config), "aa");
}
END_OF_TEST

TEST(lists)
{
    for (size_t f = 0; f < 5; f++) {
        const char *family = f < 3 ? deltas[f] : convs[f - 3], *word = f < 3 ? "linear_attention" : "conv";
        config_refuses(family, "layer_types", "[\"full_attention\", \"mamba\"]", CALM_EUNSUPPORTED,
                       test_format("\"layer_types\"[1]: expected \"full_attention\" or \"%s\", found \"mamba\"", word));
        config_refuses(family, "layer_types", f < 3 ? "[\"conv\", \"conv\"]" : "[\"linear_attention\", 0]",
                       CALM_EUNSUPPORTED, "\"layer_types\"[0]");
        config_refuses(family, "layer_types", "[\"full_attention\"]", CALM_EFORMAT, "1 entries, expected 2");
        config_refuses(family, "layer_types", "[]", CALM_EFORMAT, "0 entries, expected 2");
        config_refuses(family, "layer_types", "[\"full_attention\", \"full_attention\", \"full_attention\"]",
                       CALM_EFORMAT, "3 entries, expected 2");
        config_refuses(family, "layer_types", "[1, 2]", CALM_EUNSUPPORTED, "found \"\"");
        config_refuses(family, "layer_types", "\"conv\"", CALM_EFORMAT, "layer_types");
    }
    config_refuses("lfm2_moe", "layer_types", NULL, CALM_EFORMAT, "layer_types");
    config_refuses("qwen3_5", "full_attention_interval", "0", CALM_EFORMAT, "full_attention_interval");
}
END_OF_TEST

TEST(sizes)
{
    static const char *const keys[] = {"linear_conv_kernel_dim", "linear_key_head_dim", "linear_value_head_dim",
                                       "linear_num_key_heads", "linear_num_value_heads"};
    static const char *const wrong[] = {"0", "-1", "4.5", "\"4\"", "99999999999"};
    for (size_t w = 0; w < 5; w++) {
        for (size_t f = 0; f < 3; f++)
            for (size_t k = 0; k < 5; k++)
                config_refuses(deltas[f], keys[k], wrong[w], CALM_EFORMAT, keys[k]);
        for (size_t f = 0; f < 2; f++)
            config_refuses(convs[f], "conv_L_cache", wrong[w], CALM_EFORMAT, "conv_L_cache");
    }
    config_refuses("qwen3_5", "linear_conv_kernel_dim", "0", CALM_EFORMAT, "found 0");
    config_refuses("lfm2", "conv_L_cache", "0", CALM_EFORMAT, "found 0");
    config_refuses("qwen3_5", "linear_num_value_heads", "3", CALM_EFORMAT,
                   "\"linear_num_value_heads\": expected a multiple of linear_num_key_heads (2), found 3");
    config_refuses("qwen3_5", "linear_num_key_heads", "4194304", CALM_EFORMAT, "linear_num_key_heads");
    config_refuses("qwen3_5", "linear_key_head_dim", "16777216", CALM_EFORMAT, "rows");
    config_refuses("qwen3_5", "attn_output_gate", "false", CALM_EUNSUPPORTED, "attn_output_gate");
}
END_OF_TEST

/* Other settings of published files of Qwen3.5 and Qwen3-Next. */
TEST(published_keys)
{
    for (size_t f = 0; f < 3; f++) {
        config_with(deltas[f], "attn_output_gate", "true");
        config_with(deltas[f], "mamba_ssm_dtype", "\"float32\"");
        config_with(deltas[f], "mtp_num_hidden_layers", "1");
        config_with(deltas[f], "mtp_use_dedicated_embeddings", "false");
        config_with(deltas[f], "full_attention_interval", "4");
        /* Biases of the attention only. */
        const calm_config biased = config_with(deltas[f], "attention_bias", "true");
        ck_assert(biased.bias[CALM_ROLE_Q] && biased.bias[CALM_ROLE_O] && !biased.bias[CALM_ROLE_DELTA_OUT]
                  && !biased.bias[CALM_ROLE_DELTA_QKV] && !biased.bias[CALM_ROLE_DELTA_BA]);
        ck_assert_uint_eq(config_with(deltas[f], "partial_rotary_factor", "0.75").rope[CALM_ROPE_GLOBAL].rotary, 6);
    }
    ck_assert_uint_eq(config_with("qwen3_5", "partial_rotary_factor", NULL).rope[CALM_ROPE_GLOBAL].rotary, 2);
    ck_assert(config_with("qwen3_next", "norm_topk_prob", NULL).moe.norm_top_k);
    ck_assert(!config_with("qwen3_next", "norm_topk_prob", "false").moe.norm_top_k);
    ck_assert(config_with("qwen3_5_moe", "_", "0").moe.norm_top_k);
    config_with("lfm2", "block_dim", "32");
    config_with("lfm2", "block_norm_eps", "1e-5");
    config_with("lfm2", "block_use_swiglu", "true");
    config_with("lfm2", "block_use_xavier_init", "true");
    config_with("lfm2", "conv_dim", "32");
    config_with("lfm2", "conv_dim_out", "32");
    config_with("lfm2", "use_pos_enc", "true");
    config_with("lfm2", "theta", "1000000.0");
    config_with("lfm2", "num_heads", "4");
}
END_OF_TEST

/* The width of LFM2's MLP: 2/3 of 48 is 32, times a factor, rounded up to a multiple. */
TEST(adjusted_width)
{
    ck_assert_uint_eq(config_with("lfm2", "_", "0").inner, 48);
    ck_assert_uint_eq(config_with("lfm2", "block_auto_adjust_ff_dim", "true").inner, 256);
    ck_assert_uint_eq(config_with("lfm2", "block_auto_adjust_ff_dim", NULL).inner, 256);
    ck_assert_uint_eq(config_with("lfm2", "block_ff_dim", "96").inner, 96);
    config_refuses("lfm2", "block_multiple_of", "0", CALM_EFORMAT, "block_multiple_of");
    config_refuses("lfm2", "block_ffn_dim_multiplier", "-1", CALM_EFORMAT, "block_ffn_dim_multiplier");
}
END_OF_TEST

TEST(other_keys_of_lfm2)
{
    static const char *const wrong[] = {"[2]", "[-1]", "[0.5]", "[\"0\"]"};
    for (size_t i = 0; i < 4; i++)
        config_refuses("lfm2", "full_attn_idxs", wrong[i], CALM_EFORMAT, "\"full_attn_idxs\"[0]");
    config_refuses("lfm2", "full_attn_idxs", "3", CALM_EFORMAT, "full_attn_idxs");
    for (size_t f = 0; f < 2; f++) {
        ck_assert(config_with(convs[f], "tie_embedding", "true").tied);
        ck_assert(!config_with(convs[f], "tie_embedding", "false").tied);
        ck_assert(config_with(convs[f], "conv_bias", "true").bias[CALM_ROLE_CONV_IN]);
    }
    const calm_moe_config moe = config_with("lfm2_moe", "routed_scaling_factor", "2.5").moe;
    ck_assert(moe.score == CALM_ROUTER_SIGMOID && moe.choice_bias && moe.scale == 2.5f && moe.sum_plus == 1e-6f);
    ck_assert(!config_with("lfm2_moe", "use_expert_bias", "false").moe.choice_bias);
    const calm_config dense = config_with("lfm2_moe", "num_dense_layers", "1");
    ck_assert(!dense.moe.sparse[0] && dense.moe.sparse[1]);
}
END_OF_TEST

/* ---- Mamba-2 ---- */

static const char *const granite = "granitemoehybrid";

TEST(blocks_of_granite)
{
    calm_config config = config_with(granite, "_", "0");
    ck_assert_str_eq(mixers(&config), "ma");
    ck_assert_uint_eq(config.mamba.shape.n_heads, 4);
    ck_assert_uint_eq(config.mamba.shape.head_dim, 16);
    ck_assert_uint_eq(config.mamba.shape.state_dim, 7);
    ck_assert(config.conv_width == 4 && config.mamba.conv_bias && config.moe.sparse[0] && config.moe.sparse[1]);
    ck_assert(config.inner == config.moe.shared_inner && config.moe.norm_top_k && config.no_rope[1]);
    /* Other words of published files; without the list no block has attention. */
    config = config_with(granite, "layer_types", "[\"attention\", \"mamba\"]");
    ck_assert_str_eq(mixers(&config), "am");
    config = config_with(granite, "layer_types", "null");
    ck_assert_str_eq(mixers(&config), "mm");
    config_refuses(granite, "layer_types", "[\"mamba\"]", CALM_EFORMAT, "1 entries, expected 2");
    config_refuses(granite, "layer_types", "[\"mamba\", \"conv\"]", CALM_EUNSUPPORTED,
                   "\"layer_types\"[1]: expected \"full_attention\" or \"linear_attention\", found \"conv\"");
    config = config_with(granite, "num_local_experts", "0");
    ck_assert(!calm_config_is_mixture(&config) && config.moe.n_experts == 0);
    config_refuses(granite, "num_local_experts", "-1", CALM_EFORMAT, "num_local_experts");
    config_refuses(granite, "num_local_experts", NULL, CALM_EFORMAT, "num_local_experts");
    config_refuses(granite, "shared_intermediate_size", "0", CALM_EFORMAT, "shared_intermediate_size");
}
END_OF_TEST

TEST(positions_of_granite)
{
    ck_assert(!config_with(granite, "position_embedding_type", "\"rope\"").no_rope);
    ck_assert(config_with(granite, "position_embedding_type", "\"nope\"").no_rope[0]);
    ck_assert(config_with(granite, "position_embedding_type", "null").no_rope[0]);
    config_refuses(granite, "position_embedding_type", "\"alibi\"", CALM_EUNSUPPORTED, "found \"alibi\"");
    config_refuses(granite, "normalization_function", "\"layernorm\"", CALM_EUNSUPPORTED, "normalization_function");
    config_with(granite, "normalization_function", "\"rmsnorm\"");
    config_with(granite, "mamba_chunk_size", "256");
}
END_OF_TEST

TEST(sizes_of_mamba)
{
    static const char *const keys[] = {"mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state",
                                       "mamba_d_conv", "mamba_expand"};
    static const char *const wrong[] = {"0", "-1", "4.5", "\"4\"", "99999999999"};
    for (size_t k = 0; k < 6; k++)
        for (size_t w = 0; w < 5; w++)
            config_refuses(granite, keys[k], wrong[w], CALM_EFORMAT, keys[k]);
    ck_assert_uint_eq(config_with(granite, "mamba_d_head", "\"auto\"").mamba.shape.head_dim, 16);
    ck_assert_uint_eq(config_with(granite, "mamba_d_head", "16").mamba.shape.head_dim, 16);
    config_refuses(granite, "mamba_d_head", "8", CALM_EFORMAT,
                   "\"mamba_d_head\": expected mamba_expand hidden_size / mamba_n_heads (16), found 8");
    config_refuses(granite, "mamba_n_heads", "3", CALM_EFORMAT, "expected a divisor of mamba_expand hidden_size (64)");
    config_refuses(granite, "mamba_n_groups", "3", CALM_EFORMAT,
                   "\"mamba_n_heads\": expected a multiple of mamba_n_groups (3), found 4");
    config_refuses(granite, "mamba_d_state", "16777216", CALM_EFORMAT, "rows");
    const calm_config biased = config_with(granite, "mamba_proj_bias", "true");
    ck_assert(biased.bias[CALM_ROLE_MAMBA_IN] && biased.bias[CALM_ROLE_MAMBA_OUT] && !biased.bias[CALM_ROLE_Q]);
    ck_assert(!config_with(granite, "mamba_conv_bias", "false").mamba.conv_bias);
}
END_OF_TEST

TEST(limits_of_steps)
{
    static const char *const wrong[] = {"[]", "[0.0]", "3", "[0.1, 0.0]", "[-1, 2]", "[\"0\", 1]", "[0, 1, 2]",
                                        "[0, {\"__float__\": \"NaN\"}]", "{}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        config_refuses(granite, "time_step_limit", wrong[i], CALM_EFORMAT, "time_step_limit");
    calm_mamba_limits limits = config_with(granite, "time_step_limit", "[0.5, 2]").mamba.limits;
    ck_assert(limits.least == 0.5f && limits.most == 2);
    limits = config_with(granite, "time_step_limit", "[0.0, {\"__float__\": \"Infinity\"}]").mamba.limits;
    ck_assert(limits.least == 0 && limits.most == INFINITY);
    limits = config_with(granite, "time_step_limit", NULL).mamba.limits;
    ck_assert(limits.least == 0 && limits.most == INFINITY);
}
END_OF_TEST

/* ---- blocks of one sublayer ---- */

static const char *const single = "nemotron_h";

/* Returns "m-" for a block with Mamba-2 only, "-r" for one with experts only. */
static const char *sublayers(const calm_config *config)
{
    const char *text = "";
    for (size_t i = 0; i < config->n_blocks; i++)
        for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++) {
            const calm_kind *kind = calm_kind_at(config, i, s);
            text = test_format("%s%s%c", text, i && !s ? " " : "", !kind ? '-' : kind->routed ? 'r' : kind->name[0]);
        }
    return text;
}

TEST(single_blocks)
{
    calm_config config = config_with(single, "_", "0");
    ck_assert_str_eq(sublayers(&config), "m- -r");
    ck_assert(config.activation == CALM_ACTIVATION_RELU2 && config.mamba.activation == CALM_ACTIVATION_SILU);
    ck_assert(config.mamba.limits.least == 0.001f && config.mamba.limits.most == INFINITY);
    ck_assert(config.rope[CALM_ROPE_GLOBAL].rotary == 0 && config.moe.choice_bias && config.moe.scale == 1.5f);
    config = config_with(single, "layers_block_type", "[\"attention\", \"mlp\"]");
    ck_assert_str_eq(sublayers(&config), "a- -m");
    ck_assert(config.moe.n_experts == 0 && !config.moe.sparse[1]);
    config_refuses(single, "layers_block_type", "[\"mamba\", \"conv\"]", CALM_EUNSUPPORTED,
                   "\"layers_block_type\"[1]: expected \"linear_attention\", \"full_attention\", \"mlp\" or \"moe\", "
                   "found \"conv\"");
    config_refuses(single, "layers_block_type", "[\"mamba\"]", CALM_EFORMAT,
                   "1 entries, expected 2 (num_hidden_layers)");
    config_refuses(single, "layers_block_type", "[]", CALM_EFORMAT, "0 entries");
    config_refuses(single, "layers_block_type", "7", CALM_EFORMAT, "layers_block_type");
    config_refuses(single, "layers_block_type", NULL, CALM_EFORMAT, "layers_block_type");
}
END_OF_TEST

/* Returns the config with this pattern, with or without the list. */
static calm_config with_pattern(const char *pattern, bool list)
{
    tiny_model spec = tiny_of(single);
    const char *dir = test_directory();
    calm_json *root, *nothing;
    calm_config config;
    spec.extra = test_format("\"hybrid_override_pattern\": \"%s\"", pattern);
    tiny_model_write_config(&spec, dir);
    ck_ok(calm_json_read(ctx, test_format("%s/config.json", dir), 1 << 20, &root));
    ck_ok(calm_json_parse(ctx, "null", "[null]", 6, &nothing));
    if (!list)
        calm_json_set(root, "layers_block_type", calm_json_copy(calm_json_at(nothing, 0)));
    ck_ok(calm_config_read(ctx, dir, root, &config));
    calm_json_free(nothing);
    calm_json_free(root);
    return config;
}

/* The published spelling, and a file without the number of blocks. */
TEST(single_words)
{
    static const struct {
        const char *pattern, *found;
    } cases[] = {{"ME", "m- -r"}, {"*-", "a- -m"}, {"-M", "-m m-"}};
    for (size_t i = 0; i < 3; i++) {
        calm_config config = with_pattern(cases[i].pattern, false);
        ck_assert_str_eq(sublayers(&config), cases[i].found);
        /* The list has precedence over the pattern. */
        config = with_pattern(cases[i].pattern, true);
        ck_assert_str_eq(sublayers(&config), "m- -r");
    }
    ck_assert_uint_eq(config_with(single, "num_hidden_layers", NULL).n_blocks, 2);
}
END_OF_TEST

TEST(single_keys)
{
    static const struct {
        const char *key, *value;
    } changes[] = {{"attention_bias", "true"}, {"sliding_window", "12"},
                   {"mlp_hidden_act", "\"tanh\""}, {"mamba_hidden_act", "\"tanh\""}},
      wrong[] = {{"n_group", "2"},         {"topk_group", "2"},        {"mamba_num_heads", "0"},
                 {"mamba_num_heads", "3"}, {"mamba_head_dim", "0"},  {"ssm_state_size", "-1"},
                 {"conv_kernel", "0"},     {"n_groups", "0"},
                 {"time_step_min", "-1"},  {"n_routed_experts", "0"},  {"use_bias", "1"},
                 {"moe_shared_expert_intermediate_size", "0"}, {"moe_latent_size", "0"}};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        config_refuses(single, changes[i].key, changes[i].value, CALM_EUNSUPPORTED, changes[i].key);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        config_refuses(single, wrong[i].key, wrong[i].value, CALM_EFORMAT, wrong[i].key);
    ck_assert_uint_eq(config_with(single, "moe_latent_size", "null").moe.latent, 0);
    ck_assert_uint_eq(config_with(single, "moe_latent_size", "16").moe.latent, 16);
    config_with(single, "rope_theta", "10000");
    config_with(single, "partial_rotary_factor", "1.0");
    config_with(single, "rescale_prenorm_residual", "true");
    config_with(single, "residual_in_fp32", "true");
    config_with(single, "time_step_limit", "[0.0, {\"__float__\": \"Infinity\"}]");
    config_with(single, "use_mamba_kernels", "true");
    config_with(single, "chunk_size", "128");
    config_with(single, "expand", "2");
    ck_assert(config_with(single, "use_bias", "true").bias[CALM_ROLE_MAMBA_OUT]);
    ck_assert(!config_with(single, "use_conv_bias", "false").mamba.conv_bias);
    ck_assert(config_with("nemotron_dense", "mlp_bias", "true").bias[CALM_ROLE_UP]);
    ck_assert(config_with(single, "mlp_bias", "true").moe.shared_bias);
    config_with(single, "n_shared_experts", "2");    /* one expert of the shared width, whatever the key says */
    ck_assert(config_with(single, "time_step_min", "0.25").mamba.limits.least == 0.25f);
}
END_OF_TEST

int main(void)
{
    return run_tests("mixers", (const TTest *[]){kinds_of_blocks, lists, sizes, published_keys, adjusted_width,
                                                 other_keys_of_lfm2, blocks_of_granite, positions_of_granite,
                                                 sizes_of_mamba, limits_of_steps, single_blocks, single_words,
                                                 single_keys, NULL});
}
