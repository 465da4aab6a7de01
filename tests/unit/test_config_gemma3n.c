/* Settings of Gemma 3n: streams, lists over blocks, shared keys, inputs of each block, refusals. */
#include "ptq/arch/kind.h"
#include "ptq/model/extra_tensors.h"
#include "ptq/model/tensor_use.h"
#include "tests/support/config_cases.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

#define G "gemma3n"

/* tiny_of() has two blocks of width 32: one that slides and zeroes 3/4 of its gate, and one that does neither; and
 * three streams, of which the second enters the sublayers. */
TEST(streams)
{
    calm_config config = config_with(G, "_", "0");
    ck_assert(config.streams.n == 3 && config.streams.active == 1 && config.streams.rank == 8 && config.streams.scale);
    ck_assert(config.streams.at == 0 && config.carried == 3 * 32);
    config = config_with(G, "altup_num_inputs", NULL);
    ck_assert(config.streams.n == 4 && config.carried == 4 * 32);
    config = config_with(G, "altup_active_idx", NULL);
    ck_assert_uint_eq(config.streams.active, 0);
    config = config_with(G, "altup_correct_scale", "false");
    ck_assert(!config.streams.scale);
    config = config_with(G, "laurel_rank", NULL);
    ck_assert_uint_eq(config.streams.rank, 64);
    /* Keys of training, and keys of published files that no code reads. */
    config_with(G, "altup_coef_clip", "3.5");
    config_with(G, "altup_lr_multiplier", "1.5");
    ck_assert(config_with(G, "query_pre_attn_scalar", "256").attention_scale == 1);
}
END_OF_TEST

TEST(streams_that_are_wrong)
{
    static const char *const sizes[] = {"0", "-1", "1.5", "\"3\"", "16777217"};
    for (size_t i = 0; i < 5; i++) {
        config_refuses(G, "altup_num_inputs", sizes[i], CALM_EFORMAT, "\"altup_num_inputs\"");
        config_refuses(G, "laurel_rank", sizes[i], CALM_EFORMAT, "\"laurel_rank\"");
    }
    config_refuses(G, "laurel_rank", "0", CALM_EFORMAT, "\"laurel_rank\": expected 1 to 16777216, found 0");
    config_refuses(G, "altup_num_inputs", "17", CALM_EFORMAT, "expected 1 to 16, found 17");
    config_refuses(G, "altup_active_idx", "3", CALM_EFORMAT, "\"altup_active_idx\": expected 0 to 2, found 3");
    config_refuses(G, "altup_active_idx", "-1", CALM_EFORMAT, "\"altup_active_idx\": expected 0 to 2, found -1");
    config_refuses(G, "altup_num_inputs", "1", CALM_EFORMAT, "\"altup_active_idx\": expected 0 to 0, found 1");
    config_refuses(G, "altup_correct_scale", "1", CALM_EFORMAT, "\"altup_correct_scale\"");
}
END_OF_TEST

TEST(lists_over_blocks)
{
    calm_config config = config_with(G, "intermediate_size", "[16, 80]");
    ck_assert(calm_config_at(&config, 0)->inner == 16 && calm_config_at(&config, 1)->inner == 80);
    ck_assert(calm_config_at(&config, 0)->gate_sparsity == 0.75F && calm_config_at(&config, 1)->gate_sparsity == 0);
    ck_assert(config.window[0] == 12 && config.window[1] == 0 && config.local_rope[0] && !config.local_rope[1]);
    /* Without the list the first ten blocks are sparse if there are more than ten. */
    config = config_with(G, "activation_sparsity_pattern", "null");
    ck_assert(calm_config_at(&config, 0)->gate_sparsity == 0);
    config_refuses(G, "intermediate_size", "[16]", CALM_EFORMAT,
                   "\"intermediate_size\": 1 entries, expected 2 (num_hidden_layers)");
    config_refuses(G, "intermediate_size", "[16, 0]", CALM_EFORMAT,
                   "\"intermediate_size\"[1]: expected a whole number from 1 to 16777216, found 0");
    config_refuses(G, "intermediate_size", "[16, 2.5]", CALM_EFORMAT, "found 2.5");
    config_refuses(G, "intermediate_size", "[\"16\", 16]", CALM_EFORMAT, "\"intermediate_size\"[0]");
    config_refuses(G, "intermediate_size", "[16777217, 16]", CALM_EFORMAT, "\"intermediate_size\"[0]");
    config_refuses(G, "activation_sparsity_pattern", "[0.5]", CALM_EFORMAT,
                   "\"activation_sparsity_pattern\": 1 entries, expected 2 (num_hidden_layers)");
    config_refuses(G, "activation_sparsity_pattern", "0.5", CALM_EFORMAT, "\"activation_sparsity_pattern\"");
    config_refuses(G, "activation_sparsity_pattern", "[0.5, 1]", CALM_EFORMAT,
                   "\"activation_sparsity_pattern\"[1]: expected a number from 0 to less than 1, found 1");
    config_refuses(G, "activation_sparsity_pattern", "[-0.5, 0]", CALM_EFORMAT, "[0]: expected a number");
    config_refuses(G, "activation_sparsity_pattern", "[null, 0]", CALM_EFORMAT, "[0]: expected a number");
    config_refuses(G, "activation_sparsity_pattern", "[0, 0.99999999999]", CALM_EFORMAT, "[1]: expected a number");
    config_refuses(G, "layer_types", "[\"full_attention\"]", CALM_EFORMAT, "1 entries, expected 2");
    config_refuses("gemma4", "intermediate_size", "[16, 16]", CALM_EFORMAT, "intermediate_size");
}
END_OF_TEST

static calm_status read_blocks(size_t n_blocks, const char *extra, calm_config *out)
{
    tiny_model model = tiny_of(G);
    const char *dir = test_directory();
    calm_json *root;
    model.n_blocks = n_blocks;
    model.extra = extra;
    tiny_model_write_config(&model, dir);
    ck_ok(calm_json_read(ctx, test_format("%s/config.json", dir), 1 << 20, &root));
    const calm_status status = calm_config_read(ctx, "config.json", root, out);
    calm_json_free(root);
    return status;
}

TEST(shared_keys)
{
    calm_config config;
    ck_ok(read_blocks(4, NULL, &config));
    for (size_t i = 0; i < 4; i++) {
        const calm_config *block = calm_config_at(&config, i);
        ck_assert_int_eq(block->kv, i < 2 ? CALM_KV_KEPT : CALM_KV_SHARED);
        ck_assert_int_eq(calm_has_role(block, CALM_ROLE_K), i < 2);
        ck_assert_uint_eq(block->inner, 48);
    }
    /* Keys and values of two blocks with 2 heads of 8, followed by the streams. */
    ck_assert(config.streams.at == 2 * 2 * 2 * 8 && config.carried == config.streams.at + 3 * 32);
    config_refuses(G, "num_kv_shared_layers", "2", CALM_EFORMAT, "num_kv_shared_layers");
    config_refuses(G, "num_kv_shared_layers", "1", CALM_EFORMAT, "block 1 has no block of its type before");
    /* The class's default is 15. */
    config_refuses(G, "num_kv_shared_layers", NULL, CALM_EFORMAT,
                   "\"num_kv_shared_layers\": expected 0 to 1, found 15 (absent)");
}
END_OF_TEST

TEST(inputs_of_blocks)
{
    calm_config config = config_with(G, "vocab_size_per_layer_input", "40");
    ck_assert(config.per_layer == 8 && config.per_layer_rows == 40 && config.vocab == 61);
    config = config_with(G, "vocab_size_per_layer_input", NULL);
    ck_assert_uint_eq(config.per_layer_rows, 262144);
    config_refuses(G, "vocab_size_per_layer_input", "0", CALM_EFORMAT, "vocab_size_per_layer_input");
    config_refuses(G, "hidden_size_per_layer_input", "0", CALM_EFORMAT,
                   "\"hidden_size_per_layer_input\": expected at least 1, found 0 or null");
    config_refuses(G, "hidden_size_per_layer_input", "null", CALM_EFORMAT, "hidden_size_per_layer_input");
}
END_OF_TEST

TEST(defaults)
{
    calm_config config = config_with(G, "final_logit_softcapping", NULL);
    ck_assert(config.logit_cap == 30 && config.attention_scale == 1 && config.value_norm);
    config = config_with(G, "final_logit_softcapping", "null");
    ck_assert(config.logit_cap == 0);
    config = config_with(G, "sliding_window", NULL);
    ck_assert_uint_eq(config.window[0], 512);
    ck_assert_int_eq(calm_kinds_need_back(ctx, &config, "`learn`"), CALM_EUNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(ctx->message, "calm does not compute those of gemma3n's parallel"));
    calm_ctx_clear_failure(ctx);
}
END_OF_TEST

/* The linears of the streams are numbered; other numbers belong to no linear. */
TEST(numbered_tensors)
{
    static const char *const foreign[] = {"altup_projections.2.weight", "altup_projections.00.weight",
                                          "altup_projections.01.weight", "altup_projections.weight",
                                          "altup_projections.0.bias", "altup_projections..weight",
                                          "altup_projections.99999999999999999999.weight", "altup_projections.0weight"};
    const tiny_model spec = tiny_of(G);
    calm_extra_tensor parts[CALM_EXTRA_TENSORS];
    calm_model *model;
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(calm_model_tensor_use(model, test_format("model.altup_projections.%d.weight", i)),
                         CALM_TENSOR_READ);
        ck_assert_int_eq(calm_model_tensor_use(model, test_format("model.altup_unembed_projections.%d.weight", i)),
                         CALM_TENSOR_READ);
    }
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        ck_assert_int_eq(calm_model_tensor_use(model, test_format("model.%s", foreign[i])), CALM_TENSOR_FOREIGN);
    /* All but the factor, which the model lacks. */
    ck_assert_uint_eq(calm_extra_tensors(calm_model_config(model), parts), CALM_EXTRA_TENSORS - 1);
    calm_model_close(model);
}
END_OF_TEST

/* Without memory for the carried streams a block fails, and writes nothing. */
TEST(no_streams)
{
    const tiny_model spec = tiny_of(G);
    static float x[2 * 32];
    const uint32_t ids[2] = {3, 4};
    const calm_span span = {.n_tokens = 2, .ids = ids};
    calm_model *model;
    calm_block block;
    calm_rope rope;
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
    ck_ok(calm_rope_init(ctx, calm_model_config(model), 2, &rope));
    ck_ok(calm_model_load_block(ctx, model, 1, &block));
    ck_assert_int_eq(calm_block_run(ctx, &block, &rope, x, &span, NULL), CALM_EARG);
    ck_assert_ptr_nonnull(strstr(ctx->message, "block 1 reads 3 residual streams, and the span has none"));
    calm_ctx_clear_failure(ctx);
    calm_model_close(model);
}
END_OF_TEST

int main(void)
{
    return run_tests("config_gemma3n",
                     (const TTest *[]){streams, streams_that_are_wrong, lists_over_blocks, shared_keys,
                                       inputs_of_blocks, defaults, numbered_tensors, no_streams, NULL});
}
