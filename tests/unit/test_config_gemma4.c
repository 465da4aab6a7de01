/* Settings of Gemma 4: head widths by the type of a block, shared keys, inputs of each block, experts, refusals. */
#include "ptq/arch/kind.h"
#include "ptq/model/extra_tensors.h"
#include "ptq/layers/rope.h"
#include "tests/support/config_cases.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

/* tiny_of() has 4 heads of 8, 2 KV heads, and two blocks: one that slides, and one with heads of 16. */
TEST(widths_of_heads)
{
    calm_config config = config_with("gemma4", "_", "0");
    ck_assert(config.window[0] == 12 && config.window[1] == 0 && config.local_rope[0] && !config.local_rope[1]);
    ck_assert(calm_config_at(&config, 0)->head_dim == 8 && calm_config_at(&config, 1)->head_dim == 16);
    ck_assert(calm_config_at(&config, 1)->n_kv == 2 && config.attention_scale == 1 && config.value_norm);
    ck_assert(config.rope[CALM_ROPE_GLOBAL].rotary == 16 && config.rope[CALM_ROPE_LOCAL].rotary == 8);
    ck_assert(config.rope[CALM_ROPE_GLOBAL].kind == CALM_ROPE_PROPORTIONAL);
    ck_assert(config.rope[CALM_ROPE_GLOBAL].share == 0.25 && config.rope[CALM_ROPE_GLOBAL].theta == 1e6);
    ck_assert(config.rope[CALM_ROPE_LOCAL].kind == CALM_ROPE_DEFAULT && config.rope[CALM_ROPE_LOCAL].theta == 1e4);
    config = config_with("gemma4", "global_head_dim", NULL);
    ck_assert_uint_eq(calm_config_at(&config, 1)->head_dim, 512);
    /* The key is read only if keys are values too, as in the reference. */
    config = config_with("gemma4", "num_global_key_value_heads", "1");
    ck_assert_uint_eq(calm_config_at(&config, 1)->n_kv, 2);
    /* The form of transformers 5, which takes precedence. */
    config = config_with("gemma4", "per_layer_config", "{\"1\": {\"head_dim\": 24, \"num_key_value_heads\": 1}}");
    ck_assert(calm_config_at(&config, 1)->head_dim == 24 && calm_config_at(&config, 1)->n_kv == 1);
    ck_assert(calm_config_at(&config, 0)->head_dim == 8 && calm_config_at(&config, 0)->n_kv == 2);
    config = config_with("gemma4", "per_layer_config", "{}");
    ck_assert_uint_eq(calm_config_at(&config, 1)->head_dim, 8);
}
END_OF_TEST

TEST(widths_that_are_wrong)
{
    static const char *const numbers[] = {"0", "-2", "16777217", "1.5", "\"8\""};
    for (size_t i = 0; i < 5; i++) {
        config_refuses("gemma4", "global_head_dim", numbers[i], CALM_EFORMAT, "global_head_dim");
        config_refuses("gemma4", "per_layer_config", test_format("{\"1\": {\"head_dim\": %s}}", numbers[i]),
                       CALM_EFORMAT, "head_dim");
    }
    config_refuses("gemma4", "global_head_dim", "15", CALM_EFORMAT, "heads of 15: expected an even number");
    config_refuses("gemma4", "global_head_dim", "16777214", CALM_EFORMAT, "heads of 16777214");
    config_refuses("gemma4", "per_layer_config", "{\"2\": {}}", CALM_EFORMAT, "\"2\": expected the number of a block");
    config_refuses("gemma4", "per_layer_config", "{\"x\": {}}", CALM_EFORMAT, "\"x\"");
    config_refuses("gemma4", "per_layer_config", "{\"99999999999999999999\": {}}", CALM_EFORMAT, "below 2");
    config_refuses("gemma4", "per_layer_config", "{\"\": {}}", CALM_EFORMAT, "per_layer_config");
    config_refuses("gemma4", "per_layer_config", "[]", CALM_EFORMAT, "per_layer_config");
    config_refuses("gemma4", "per_layer_config", "{\"1\": 3}", CALM_EFORMAT, "per_layer_config");
    config_refuses("gemma4", "per_layer_config", "{\"1\": {\"sliding_window\": 3}}", CALM_EUNSUPPORTED,
                   "\"sliding_window\" is not supported");
    config_refuses("gemma4", "per_layer_config", "{\"1\": {\"num_key_value_heads\": 3}}", CALM_EFORMAT,
                   "4 is not a multiple of the 3 key heads of block 1");
    config_refuses("gemma4", "layer_types", "[\"full_attention\"]", CALM_EFORMAT, "1 entries, expected 2");
    config_refuses("gemma4", "layer_types", "[\"full_attention\", \"conv\"]", CALM_EUNSUPPORTED, "\"conv\"");
}
END_OF_TEST

TEST(values_that_are_keys)
{
    const calm_config config = config_with("gemma4", "attention_k_eq_v", "true");
    const calm_config *slides = calm_config_at(&config, 0), *full = calm_config_at(&config, 1);
    calm_feed feed;
    ck_assert(calm_has_role(slides, CALM_ROLE_V) && !calm_has_role(full, CALM_ROLE_V));
    ck_assert(calm_has_role(full, CALM_ROLE_K) && full->k_is_v && !slides->k_is_v);
    /* A norm lies between v and the input of o. */
    ck_assert_int_eq(calm_job_fold(slides, CALM_JOB_O, CALM_NO_EXPERT, &feed), CALM_FOLD_NONE);
}
END_OF_TEST

TEST(the_last_block_has_full_attention)
{
    const calm_config config = config_with("gemma4", "layer_types", "[\"full_attention\", \"sliding_attention\"]");
    ck_assert(config.window[0] == 0 && config.window[1] == 0 && !config.local_rope[1]);
    ck_assert_uint_eq(calm_config_at(&config, 1)->head_dim, 16);
}
END_OF_TEST

/* Reads a model of four blocks, of which the last two share keys by default. */
static calm_status read_four(const char *extra, calm_config *out)
{
    tiny_model model = tiny_of("gemma4");
    const char *dir = test_directory();
    calm_json *root;
    model.n_blocks = 4;
    model.extra = extra;
    tiny_model_write_config(&model, dir);
    ck_ok(calm_json_read(ctx, test_format("%s/config.json", dir), 1 << 20, &root));
    const calm_status status = calm_config_read(ctx, "config.json", root, out);
    calm_json_free(root);
    return status;
}

TEST(shared_keys)
{
    static const calm_kv_use uses[] = {CALM_KV_KEPT, CALM_KV_KEPT, CALM_KV_SHARED, CALM_KV_SHARED};
    calm_config config;
    ck_ok(read_four("\"use_double_wide_mlp\": true", &config));
    for (size_t i = 0; i < 4; i++) {
        const calm_config *block = calm_config_at(&config, i);
        ck_assert_int_eq(block->kv, uses[i]);
        ck_assert_int_eq(calm_has_role(block, CALM_ROLE_K), i < 2);
        ck_assert_int_eq(calm_has_role(block, CALM_ROLE_V), i < 2);
        ck_assert(calm_has_role(block, CALM_ROLE_Q) && calm_has_role(block, CALM_ROLE_O));
        ck_assert_uint_eq(block->inner, i < 2 ? 48 : 96);
        ck_assert_uint_eq(block->kv_at, calm_config_at(&config, i % 2)->kv_at);
    }
    /* Keys and values of 2 heads of 8, and of 2 of 16. */
    ck_assert_uint_eq(config.carried, 2 * 2 * 8 + 2 * 2 * 16);
    ck_assert(calm_config_at(&config, 0)->kv_at != calm_config_at(&config, 1)->kv_at);
    config_refuses("gemma4", "num_kv_shared_layers", "2", CALM_EFORMAT, "num_kv_shared_layers");
    config_refuses("gemma4", "num_kv_shared_layers", "-1", CALM_EFORMAT, "num_kv_shared_layers");
    config_refuses("gemma4", "num_kv_shared_layers", "1", CALM_EFORMAT,
                   "\"num_kv_shared_layers\" 1: block 1 has no block of its type before the first of them, block 1");
}
END_OF_TEST

#define EXPERTS "\"enable_moe_block\": true, \"num_experts\": 4, \"top_k_experts\": 2, \"moe_intermediate_size\": 16, "

TEST(shared_keys_of_a_mixture)
{
    calm_config config;
    ck_ok(read_four(EXPERTS "\"use_double_wide_mlp\": false", &config));
    ck_assert(config.moe.n_experts == 4 && config.moe.shared_inner == 48);
    ck_assert_uint_eq(config.carried, 2 * 2 * 8 + 2 * 2 * 16);
    ck_assert_int_eq(calm_config_at(&config, 3)->kv, CALM_KV_SHARED);
    ck_fails(read_four(EXPERTS "\"use_double_wide_mlp\": true", &config), CALM_EUNSUPPORTED,
             "\"use_double_wide_mlp\": expected false with \"enable_moe_block\" true");
}
END_OF_TEST

TEST(inputs_of_blocks)
{
    calm_extra_tensor parts[CALM_EXTRA_TENSORS];
    calm_config config = config_with("gemma4", "_", "0");
    ck_assert_uint_eq(config.per_layer, 8);
    ck_assert_uint_eq(calm_extra_tensors(&config, parts), 7);
    config = config_with("gemma4", "hidden_size_per_layer_input", NULL);
    ck_assert_uint_eq(config.per_layer, 256);
    config = config_with("gemma4", "hidden_size_per_layer_input", "null");
    ck_assert_uint_eq(calm_extra_tensors(&config, parts), 1);
    config_refuses("gemma4", "hidden_size_per_layer_input", "-1", CALM_EFORMAT, "hidden_size_per_layer_input");
    config_refuses("gemma4", "hidden_size_per_layer_input", "16777216", CALM_EFORMAT, "hidden_size_per_layer_input");
    ck_assert_uint_eq(config_with("gemma4", "vocab_size_per_layer_input", "70").per_layer_rows, 70);
    config_refuses("gemma4", "vocab_size_per_layer_input", "60", CALM_EUNSUPPORTED,
                   "\"vocab_size_per_layer_input\": found 60, expected at least 61");
}
END_OF_TEST

#define FULL                                                                                                 \
    "\"full_attention\": {\"rope_type\": \"proportional\", \"rope_theta\": 5e5, \"partial_rotary_factor\": 0.5}"
#define SLIDE "\"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 2e4}"

TEST(rotary_embeddings)
{
    const calm_config config = config_with("gemma4", "rope_parameters", "{" FULL ", " SLIDE "}");
    const calm_rope_config *full = &config.rope[CALM_ROPE_GLOBAL], *slides = &config.rope[CALM_ROPE_LOCAL];
    calm_rope rope;
    ck_assert(full->share == 0.5 && full->theta == 5e5 && slides->theta == 2e4 && slides->share == 1);
    /* Of 8 pairs the first 4 rotate, with the frequencies of a whole head. */
    ck_ok(calm_rope_init(ctx, &config, 3, &rope));
    const calm_rope_table *table = &rope.table[CALM_ROPE_GLOBAL][0];
    ck_assert_uint_eq(table->half, 8);
    for (size_t c = 0; c < 8; c++) {
        const double angle = c < 4 ? 2 / pow(5e5, (double)c / 8) : 0;
        ck_assert_double_eq_tol((double)table->sin[2 * 8 + c], sin(angle), 1e-6);
    }
    config_refuses("gemma4", "rope_parameters", "{" FULL "}", CALM_EFORMAT, "\"sliding_attention\", which block 0 has");
    config_refuses("gemma4", "rope_parameters", "{\"rope_type\": \"default\"}", CALM_EFORMAT, "\"sliding_attention\"");
    config_refuses("gemma4", "rope_parameters", "{" SLIDE ", \"full_attention\": {\"rope_type\": \"dynamic\", "
                   "\"factor\": 2}}", CALM_EUNSUPPORTED, "longrope or dynamic");
    config_refuses("gemma4", "rope_scaling", "{\"rope_type\": \"linear\", \"factor\": 2}", CALM_EUNSUPPORTED,
                   "rope_scaling");
    config_refuses("gemma4", "rope_theta", "333", CALM_EUNSUPPORTED,
                   "\"rope_theta\" is not known for gemma4; expected \"rope_parameters\"");
    config_refuses("gemma3", "rope_parameters", "{" FULL ", " SLIDE "}", CALM_EUNSUPPORTED, "\"proportional\"");
}
END_OF_TEST

TEST(what_is_refused)
{
    config_with("gemma4", "use_bidirectional_attention", "\"vision\"");
    config_refuses("gemma4", "use_bidirectional_attention", "\"all\"", CALM_EUNSUPPORTED,
                   "\"use_bidirectional_attention\": expected null or \"vision\", found \"all\"");
    config_refuses("gemma4", "use_bidirectional_attention", "true", CALM_EUNSUPPORTED, "use_bidirectional_attention");
    config_refuses("gemma4", "enable_moe_block", "true", CALM_EFORMAT, "num_experts");
    config_refuses("gemma4", "enable_moe_block", "1", CALM_EFORMAT, "enable_moe_block");
    ck_assert(config_with("gemma4", "final_logit_softcapping", "30.0").logit_cap == 30);
    ck_assert(config_with("gemma4", "final_logit_softcapping", NULL).logit_cap == 0);
    config_refuses("gemma4", "attn_logit_softcapping", "50", CALM_EUNSUPPORTED, "attn_logit_softcapping");
    const calm_config config = config_with("gemma4", "_", "0");
    calm_config shared;
    ck_ok(read_four("\"use_double_wide_mlp\": false", &shared));
    ck_ok(calm_kinds_need_back(ctx, &config, "`learn`"));
    ck_assert(calm_kinds_have_back(&config));
    ck_fails(calm_kinds_need_back(ctx, &shared, "`learn`"), CALM_EUNSUPPORTED, "\"num_kv_shared_layers\"");
}
END_OF_TEST

int main(void)
{
    return run_tests("config_gemma4",
                     (const TTest *[]){widths_of_heads, widths_that_are_wrong, values_that_are_keys,
                                       the_last_block_has_full_attention, shared_keys, shared_keys_of_a_mixture,
                                       inputs_of_blocks, rotary_embeddings, what_is_refused, NULL});
}
