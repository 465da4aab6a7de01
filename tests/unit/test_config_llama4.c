/* config.json of Llama 4: which blocks have rotary embeddings, chunks and experts; refusals. */
#include "ptq/arch/arch.h"
#include "tests/support/config_cases.h"
#include "tests/support/harness.h"

#define FULL  "\"full_attention\""
#define CHUNK "\"chunked_attention\""

static calm_config with(const char *key, const char *value)
{
    return config_with("llama4", key, value);
}

static void refuses(const char *key, const char *value, calm_status status, const char *words)
{
    config_refuses("llama4", key, value, status, words);
}

/* Without "layer_types" the blocks with rotary embeddings attend within chunks; otherwise the list decides. */
TEST(chunks)
{
    const calm_config usual = with("_", NULL), list = with("layer_types", "[" FULL ", " CHUNK "]");
    ck_assert(usual.chunked && !usual.no_rope[0] && usual.no_rope[1]);
    ck_assert(usual.window[0] == 5 && usual.window[1] == 0);
    ck_assert(list.window[0] == 0 && list.window[1] == 5 && list.no_rope[1]);
    ck_assert_uint_eq(with("attention_chunk_size", NULL).window[0], 8192);
    refuses("layer_types", "[" FULL "]", CALM_EFORMAT, "\"layer_types\": 1 entries, expected 2 (num_hidden_layers)");
    refuses("layer_types", "[" FULL ", \"sliding_attention\"]", CALM_EUNSUPPORTED,
            "\"layer_types\"[1]: \"sliding_attention\"");
    refuses("layer_types", "[" FULL ", 1]", CALM_EUNSUPPORTED, "\"layer_types\"[1]");
    refuses("attention_chunk_size", "0", CALM_EFORMAT, "attention_chunk_size");
    refuses("attention_chunk_size", "-3", CALM_EFORMAT, "attention_chunk_size");
    refuses("attention_chunk_size", "2147483648", CALM_EFORMAT, "attention_chunk_size");
    refuses("attention_chunk_size", "\"all\"", CALM_EFORMAT, "attention_chunk_size");
}
END_OF_TEST

/* An empty list, as in published files, is the default. */
TEST(blocks_without_rope)
{
    const calm_config empty = with("no_rope_layers", "[]"), all = with("no_rope_layers", "[1, 1, 0]");
    ck_assert(!empty.no_rope[0] && empty.no_rope[1] && !all.no_rope[0] && !all.no_rope[1]);
    ck_assert(!with("no_rope_layer_interval", NULL).no_rope[1]);    /* every fourth */
    refuses("no_rope_layers", "[1]", CALM_EFORMAT, "\"no_rope_layers\": 1 entries, expected 2");
    refuses("no_rope_layers", "[1, -1]", CALM_EFORMAT, "\"no_rope_layers\"[1]: expected 0 or 1");
    refuses("no_rope_layers", "3", CALM_EFORMAT, "\"no_rope_layers\"");
    refuses("no_rope_layer_interval", "0", CALM_EFORMAT, "no_rope_layer_interval");
}
END_OF_TEST

TEST(growth_of_queries)
{
    const calm_query_scale_config on = with("_", NULL).query_growth;
    ck_assert(on.beta == 0.5f && on.length == 4 && on.from_one && on.unrotated);
    ck_assert(with("attn_temperature_tuning", "false").query_growth.beta == 0);
    ck_assert(with("attn_temperature_tuning", "0").query_growth.beta == 0);
    /* As in the first published files. */
    ck_assert(with("attn_temperature_tuning", "4").query_growth.beta == 0.5f);
    ck_assert(with("attn_scale", NULL).query_growth.beta == 0.1f);
    ck_assert(with("floor_scale", NULL).query_growth.length == 8192);
    refuses("attn_temperature_tuning", "\"on\"", CALM_EFORMAT, "attn_temperature_tuning");
    refuses("floor_scale", "0", CALM_EFORMAT, "floor_scale");
    refuses("floor_scale", "1.5", CALM_EFORMAT, "floor_scale");
    refuses("attn_scale", "-1", CALM_EFORMAT, "attn_scale");
}
END_OF_TEST

TEST(mixtures)
{
    const calm_config usual = with("_", NULL), some = with("moe_layers", "[1, 7]"), none = with("moe_layers", "[]"),
                      step = with("moe_layers", "null");
    ck_assert(usual.moe.sparse[0] && usual.moe.sparse[1]);
    ck_assert(!some.moe.sparse[0] && some.moe.sparse[1]);
    ck_assert(!none.moe.sparse[0] && !none.moe.sparse[1] && !calm_config_is_mixture(&none));
    ck_assert(step.moe.sparse[0] && step.moe.sparse[1]);    /* every block */
    ck_assert(usual.moe.weighs_input && usual.moe.by_logit && !usual.moe.norm_top_k && !usual.moe.choice_bias);
    ck_assert_int_eq(usual.moe.score, CALM_ROUTER_SIGMOID);
    ck_assert(usual.moe.inner == usual.moe.shared_inner && usual.inner != usual.moe.inner);
    refuses("moe_layers", "[-1]", CALM_EFORMAT, "\"moe_layers\"[0]: expected the number of a block");
    refuses("moe_layers", "[0, \"1\"]", CALM_EFORMAT, "\"moe_layers\"[1]");
    refuses("moe_layers", "{}", CALM_EFORMAT, "\"moe_layers\"");
    refuses("interleave_moe_layer_step", "-1", CALM_EFORMAT, "interleave_moe_layer_step");
    refuses("num_local_experts", "0", CALM_EFORMAT, "num_local_experts");
    refuses("num_experts_per_tok", "6", CALM_EFORMAT, "num_experts_per_tok");
    refuses("intermediate_size_mlp", NULL, CALM_EFORMAT, "intermediate_size_mlp");
    refuses("intermediate_size", "0", CALM_EFORMAT, "intermediate_size");
}
END_OF_TEST

TEST(norms_and_biases)
{
    const calm_config bias = with("attention_bias", "true");
    ck_assert_int_eq(with("_", NULL).qk_norm, CALM_QK_NORM_BARE);
    ck_assert_int_eq(with("use_qk_norm", "false").qk_norm, CALM_QK_NORM_NONE);
    ck_assert(bias.bias[CALM_ROLE_Q] && bias.bias[CALM_ROLE_O] && !bias.bias[CALM_ROLE_UP]);
    refuses("use_qk_norm", "1", CALM_EFORMAT, "use_qk_norm");
}
END_OF_TEST

/* Other settings of published files; Llama 4 Scout's rope scaling has one wavelength for both bounds. */
TEST(published_keys)
{
    with("for_llm_compressor", "false");
    with("for_llm_compressor", "true");
    with("router_jitter_noise", "0.1");
    with("cache_implementation", "\"hybrid\"");
    const calm_rope_config rope =
        with("rope_scaling", "{\"rope_type\": \"llama3\", \"factor\": 16.0, \"high_freq_factor\": 1.0, "
                             "\"low_freq_factor\": 1.0, \"original_max_position_embeddings\": 8192}").rope[0];
    ck_assert(rope.kind == CALM_ROPE_LLAMA3 && rope.low_freq == rope.high_freq && rope.neighbours);
    refuses("moe_layer_freq", "2", CALM_EUNSUPPORTED, "moe_layer_freq");
}
END_OF_TEST

int main(void)
{
    return run_tests("config_llama4", (const TTest *[]){chunks, blocks_without_rope, growth_of_queries, mixtures,
                                                        norms_and_biases, published_keys, NULL});
}
