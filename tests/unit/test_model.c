/* Opening checkpoints: what contradicts config.json is named by tensor, found and expected. */
#include "ptq/model/model.h"

#include "ptq/base/file.h"
#include "ptq/model/arch.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

static calm_model *open_tiny(const tiny_model *spec)
{
    calm_model *model;
    ck_ok(calm_model_open(ctx, tiny_model_write(spec), &model));
    return model;
}

/* Opening fails with this status, naming all of these words. */
static void refused(const char *dir, calm_status expected, const char *a, const char *b)
{
    calm_model *model;
    calm_status status = calm_model_open(ctx, dir, &model);
    ck_assert_msg(status == expected, "%s: %s", calm_status_name(status), ctx->message);
    ck_assert_ptr_null(model);
    ck_assert_msg(strstr(ctx->message, a) && strstr(ctx->message, b), "\"%s\" lacks \"%s\" or \"%s\"", ctx->message, a, b);
    calm_ctx_forgive(ctx);
}

TEST(opens_what_is_right)
{
    tiny_model spec = tiny_default;
    for (int variant = 0; variant < 8; variant++) {
        spec.tied = variant & 1;
        spec.bias = variant & 2;
        spec.dtype = variant & 4 ? CALM_F32 : CALM_F16;
        spec.window = variant & 4 ? 5 : 0;
        calm_model *model = open_tiny(&spec);
        const calm_config *config = calm_model_config(model);
        calm_block block;
        calm_head head;
        ck_assert_uint_eq(config->hidden, 32);
        ck_assert_uint_eq(config->window[1], spec.window);
        ck_assert_uint_eq(config->window[0], 0);
        ck_assert(!calm_model_is_quantized(model));
        ck_ok(calm_model_load_block(ctx, model, 1, &block));
        ck_assert_str_eq(block.weight[CALM_ROLE_UP].name, "model.layers.1.mlp.up_proj");
        ck_assert_uint_eq(block.weight[CALM_ROLE_K].out, 16);
        ck_assert((block.weight[CALM_ROLE_O].bias != NULL) == spec.bias);
        ck_assert_ptr_null(block.weight[CALM_ROLE_UP].bias);
        ck_ok(calm_model_load_head(ctx, model, &head));
        ck_assert_uint_eq(head.vocab, 61);
        calm_model_close(model);
    }
}
END_OF_TEST

TEST(counts_and_names)
{
    tiny_model spec = tiny_default;
    spec.tied = false;
    calm_model *model = open_tiny(&spec);
    char *name;
    const size_t block = 32 * 32 + 2 * 16 * 32 + 32 * 32 + 3 * 48 * 32 + 2 * 32 + 2 * 8;
    ck_assert_uint_eq(calm_model_n_params(model), 2 * block + 32 + 2 * 61 * 32);
    ck_assert_uint_eq(calm_model_bytes(model), 2 * calm_model_n_params(model));
    ck_ok(calm_model_block_name(ctx, model, 1, &name));
    ck_assert_str_eq(name, "model.layers.1");
    calm_model_close(model);
}
END_OF_TEST

TEST(shape_against_config)
{
    tiny_model spec = tiny_default;
    spec.transposed = "model.layers.1.mlp.down_proj.weight";
    refused(tiny_model_write(&spec), CALM_EFORMAT, "model.layers.1.mlp.down_proj.weight", "shape [48, 32], expected [32, 48]");
    spec = tiny_default;
    const char *dir = tiny_model_write(&spec);
    spec.vocab = 62;
    tiny_model_write_config(&spec, dir);
    refused(dir, CALM_EFORMAT, "model.embed_tokens.weight", "shape [61, 32], expected [62, 32]");
    spec = tiny_default;
    spec.head_dim = 16;
    spec.n_heads = 2;
    spec.n_kv = 1;
    tiny_model_write_config(&spec, dir);
    refused(dir, CALM_EFORMAT, "q_norm.weight", "shape [8], expected [16]");
    spec = tiny_default;
    spec.n_blocks = 3;
    tiny_model_write_config(&spec, dir);
    refused(dir, CALM_ENOTFOUND, "model.layers.2.", "missing");
    spec = tiny_default;
    spec.tied = false;
    tiny_model_write_config(&spec, dir);
    refused(dir, CALM_ENOTFOUND, "lm_head.weight", "shape [61, 32]");
    spec = tiny_default;
    spec.bias = true;
    tiny_model_write_config(&spec, dir);
    refused(dir, CALM_ENOTFOUND, "model.layers.0.self_attn.q_proj.bias", "missing");
}
END_OF_TEST

TEST(dtype_against_what_is_needed)
{
    static const char *const names[] = {"model.embed_tokens.weight", "model.layers.0.self_attn.v_proj.weight",
                                        "model.layers.1.input_layernorm.weight", "model.norm.weight", "lm_head.weight"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        tiny_model spec = tiny_default;
        spec.tied = false;
        spec.as_integers = names[i];
        refused(tiny_model_write(&spec), CALM_EFORMAT, names[i], "dtype I32, expected BF16, F16 or F32");
    }
}
END_OF_TEST

TEST(missing_tensors)
{
    static const char *const names[] = {"model.embed_tokens.weight", "model.layers.0.self_attn.k_norm.weight",
                                        "model.layers.1.mlp.gate_proj.weight", "model.norm.weight",
                                        "model.layers.1.post_attention_layernorm.weight"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        tiny_model spec = tiny_default;
        spec.missing = names[i];
        refused(tiny_model_write(&spec), CALM_ENOTFOUND, names[i], "missing");
    }
}
END_OF_TEST

TEST(nan_is_named_by_tensor_and_index)
{
    tiny_model spec = tiny_default;
    calm_block block;
    calm_head head;
    spec.nan_in = "model.layers.1.self_attn.o_proj.weight";
    spec.nan_at = 777;
    calm_model *model = open_tiny(&spec);
    ck_ok(calm_model_load_block(ctx, model, 0, &block));
    ck_fails(calm_model_load_block(ctx, model, 1, &block), CALM_ENUMERIC,
             "tensor model.layers.1.self_attn.o_proj.weight: element 777 is nan");
    calm_model_close(model);

    spec.nan_in = "model.layers.0.post_attention_layernorm.weight";
    spec.nan_at = 31;
    model = open_tiny(&spec);
    ck_fails(calm_model_load_block(ctx, model, 0, &block), CALM_ENUMERIC,
             "tensor model.layers.0.post_attention_layernorm.weight: element 31 is nan");
    calm_model_close(model);

    spec.nan_in = "model.embed_tokens.weight";
    spec.nan_at = 5 * 32 + 3;
    model = open_tiny(&spec);
    const uint32_t ids[] = {4, 6, 5};
    float x[3 * 32];
    ck_ok(calm_model_embed(ctx, model, ids, 2, x));
    ck_fails(calm_model_embed(ctx, model, ids, 3, x), CALM_ENUMERIC, "tensor model.embed_tokens.weight: element 163 is nan");
    ck_fails(calm_model_load_head(ctx, model, &head), CALM_ENUMERIC, "element 163 is nan");
    calm_model_close(model);
}
END_OF_TEST

TEST(ids_outside_the_vocabulary)
{
    calm_model *model = open_tiny(&tiny_default);
    const uint32_t ids[] = {60, 61};
    float x[2 * 32];
    ck_ok(calm_model_embed(ctx, model, ids, 1, x));
    ck_fails(calm_model_embed(ctx, model, ids, 2, x), CALM_EARG, "token id 61, but the vocabulary has 61");
    calm_model_close(model);
}
END_OF_TEST

TEST(directories_that_are_no_models)
{
    const char *dir = test_directory();
    refused(test_format("%s/none", dir), CALM_ENOTFOUND, "none", "no such model directory");
    refused(dir, CALM_ENOTFOUND, "config.json", "");
    tiny_model_write_config(&tiny_default, dir);
    refused(dir, CALM_ENOTFOUND, dir, "neither model.safetensors nor model.safetensors.index.json");
    ck_ok(calm_write_file(ctx, test_format("%s/config.json", dir), "{\"a\": ", 6));
    refused(dir, CALM_EFORMAT, "config.json", "");
}
END_OF_TEST

int main(void)
{
    return run_tests("model", (const TTest *[]){
        opens_what_is_right, counts_and_names, shape_against_config, dtype_against_what_is_needed, missing_tensors,
        nan_is_named_by_tensor_and_index, ids_outside_the_vocabulary, directories_that_are_no_models, NULL});
}
