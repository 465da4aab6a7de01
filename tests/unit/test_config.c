/* config.json: both spellings, and every setting that is refused by file and key. */
#include "ptq/model/config.h"

#include "ptq/model/arch.h"
#include "tests/support/harness.h"

static const char classic[] =
    "{\"architectures\": [\"Qwen3ForCausalLM\"], \"model_type\": \"qwen3\", \"hidden_size\": 64, \"intermediate_size\": 96, "
    "\"num_hidden_layers\": 3, \"vocab_size\": 100, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 16, "
    "\"rms_norm_eps\": 1e-5, \"rope_theta\": 1000000.0, \"rope_scaling\": null, \"max_position_embeddings\": 4096, "
    "\"hidden_act\": \"silu\", \"tie_word_embeddings\": true, \"attention_bias\": false, \"torch_dtype\": \"float16\"}";

static const char v5[] =
    "{\"architectures\": [\"Qwen3ForCausalLM\"], \"model_type\": \"qwen3\", \"hidden_size\": 64, \"intermediate_size\": 96, "
    "\"num_hidden_layers\": 3, \"vocab_size\": 100, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 16, "
    "\"rms_norm_eps\": 1e-5, \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 1000000.0}, "
    "\"max_position_embeddings\": 4096, \"hidden_act\": \"silu\", \"tie_word_embeddings\": true, \"attention_bias\": false, "
    "\"dtype\": \"float16\", \"layer_types\": [\"full_attention\", \"full_attention\", \"full_attention\"]}";

/* The classic configuration with `key` set to the JSON text `value`; NULL takes the key away. */
static calm_json *with(const char *key, const char *value)
{
    calm_json *root, *parsed;
    ck_ok(calm_json_parse(ctx, "classic", classic, sizeof classic - 1, &root));
    calm_json *edited = calm_json_new_object();
    const char *name;
    const calm_json *member;
    for (void *iter = NULL; calm_json_next(root, &iter, &name, &member);)
        if (strcmp(name, key) != 0)
            calm_json_set(edited, name, calm_json_copy(member));
    if (value) {
        const char *wrapped = test_format("[%s]", value);
        ck_ok(calm_json_parse(ctx, "value", wrapped, strlen(wrapped), &parsed));
        calm_json_set(edited, key, calm_json_copy(calm_json_at(parsed, 0)));
        calm_json_free(parsed);
    }
    calm_json_free(root);
    return edited;
}

/* With this key so, the configuration fails, naming the file and `words`. */
static void refused(const char *key, const char *value, calm_status expected, const char *words)
{
    calm_config config;
    calm_json *root = with(key, value);
    calm_status status = calm_config_read(ctx, "dir/config.json", root, &config);
    ck_assert_msg(status == expected, "%s = %s: %s (%s)", key, value ? value : "absent", calm_status_name(status), ctx->message);
    ck_assert_msg(strstr(ctx->message, "dir/config.json"), "%s: no file in \"%s\"", key, ctx->message);
    ck_assert_msg(strstr(ctx->message, words), "%s: \"%s\" lacks \"%s\"", key, ctx->message, words);
    calm_ctx_forgive(ctx);
    calm_json_free(root);
}

static calm_config accepted(const char *key, const char *value)
{
    calm_config config;
    calm_json *root = with(key, value);
    ck_ok(calm_config_read(ctx, "dir/config.json", root, &config));
    calm_json_free(root);
    return config;
}

TEST(both_spellings_are_the_same)
{
    calm_config a, b;
    calm_json *first, *second;
    ck_ok(calm_json_parse(ctx, "classic", classic, sizeof classic - 1, &first));
    ck_ok(calm_json_parse(ctx, "v5", v5, sizeof v5 - 1, &second));
    ck_ok(calm_config_read(ctx, "classic", first, &a));
    ck_ok(calm_config_read(ctx, "v5", second, &b));
    ck_assert_str_eq(a.arch->name, "qwen3");
    ck_assert_uint_eq(a.hidden, 64);
    ck_assert_uint_eq(a.inner, 96);
    ck_assert_uint_eq(a.n_blocks, 3);
    ck_assert_uint_eq(a.vocab, 100);
    ck_assert_uint_eq(a.n_heads, 4);
    ck_assert_uint_eq(a.n_kv, 2);
    ck_assert_uint_eq(a.head_dim, 16);
    ck_assert_uint_eq(a.max_positions, 4096);
    ck_assert(a.norm_eps == 1e-5f);
    ck_assert(a.rope_theta == 1e6);
    ck_assert(a.tied && !a.attention_bias);
    ck_assert_int_eq(a.dtype, CALM_F16);
    ck_assert(memcmp(a.window, b.window, 3 * sizeof *a.window) == 0);
    a.window = b.window = NULL;
    ck_assert(a.arch == b.arch && a.hidden == b.hidden && a.inner == b.inner && a.n_blocks == b.n_blocks);
    ck_assert(a.vocab == b.vocab && a.n_heads == b.n_heads && a.n_kv == b.n_kv && a.head_dim == b.head_dim);
    ck_assert(a.max_positions == b.max_positions && a.norm_eps == b.norm_eps && a.rope_theta == b.rope_theta);
    ck_assert(a.tied == b.tied && a.attention_bias == b.attention_bias && a.dtype == b.dtype);
    calm_json_free(first);
    calm_json_free(second);
}
END_OF_TEST

TEST(absent_keys)
{
    ck_assert_int_eq(accepted("torch_dtype", NULL).dtype, CALM_BF16);
    ck_assert(accepted("rope_theta", NULL).rope_theta == 10000.0);
    ck_assert(!accepted("tie_word_embeddings", NULL).tied);
    ck_assert(accepted("rms_norm_eps", NULL).norm_eps == 1e-6f);
    ck_assert_uint_eq(accepted("head_dim", NULL).head_dim, 128);    /* Qwen3's, not hidden / heads */
    refused("num_key_value_heads", NULL, CALM_EFORMAT, "num_key_value_heads 32");
    static const char *const needed[] = {"hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size",
                                         "num_attention_heads"};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        refused(needed[i], NULL, CALM_EFORMAT, needed[i]);
    ck_assert_str_eq(accepted("architectures", NULL).arch->name, "qwen3");    /* by model_type */
}
END_OF_TEST

TEST(architectures)
{
    refused("architectures", "[\"GPT2LMHeadModel\"]", CALM_EUNSUPPORTED, "architecture GPT2LMHeadModel");
    size_t n;
    const calm_arch *const *all = calm_architectures(&n);
    for (size_t i = 0; i < n; i++)
        refused("architectures", "[\"Other\"]", CALM_EUNSUPPORTED, all[i]->class_name);
    calm_config config;
    calm_json *root;
    ck_ok(calm_json_parse(ctx, "x", "{}", 2, &root));
    ck_fails(calm_config_read(ctx, "x", root, &config), CALM_EUNSUPPORTED, "(none named)");
    calm_json_free(root);
    ck_ok(calm_json_parse(ctx, "x", "[1]", 3, &root));
    ck_fails(calm_config_read(ctx, "x", root, &config), CALM_EFORMAT, "expected an object");
    calm_json_free(root);
}
END_OF_TEST

TEST(settings_that_change_the_computation)
{
    refused("rope_scaling", "{\"type\": \"yarn\", \"factor\": 4.0}", CALM_EUNSUPPORTED, "\"yarn\"");
    refused("rope_scaling", "{\"rope_type\": \"linear\", \"factor\": 4.0}", CALM_EUNSUPPORTED, "\"linear\"");
    refused("rope_scaling", "\"yarn\"", CALM_EFORMAT, "rope");
    refused("rope_parameters", "{\"rope_type\": \"llama3\", \"rope_theta\": 500000.0}", CALM_EUNSUPPORTED, "\"llama3\"");
    refused("rope_theta", "0", CALM_EFORMAT, "rope_theta");
    refused("rope_theta", "\"big\"", CALM_EFORMAT, "rope_theta");
    refused("partial_rotary_factor", "0.5", CALM_EUNSUPPORTED, "partial_rotary_factor");
    refused("hidden_act", "\"gelu\"", CALM_EUNSUPPORTED, "\"hidden_act\": \"gelu\"");
    refused("attn_logit_softcapping", "50.0", CALM_EUNSUPPORTED, "attn_logit_softcapping");
    refused("final_logit_softcapping", "30.0", CALM_EUNSUPPORTED, "final_logit_softcapping");
    refused("num_experts", "8", CALM_EUNSUPPORTED, "num_experts");
    refused("rms_norm_eps", "-1e-6", CALM_EFORMAT, "rms_norm_eps");
    refused("torch_dtype", "\"float8_e4m3fn\"", CALM_EUNSUPPORTED, "float8_e4m3fn");
    refused("dtype", "\"int8\"", CALM_EUNSUPPORTED, "int8");
    refused("tie_word_embeddings", "1", CALM_EFORMAT, "tie_word_embeddings");
    accepted("attn_logit_softcapping", "null");
    accepted("rope_scaling", "{\"rope_type\": \"default\"}");
    accepted("partial_rotary_factor", "1.0");
}
END_OF_TEST

TEST(sizes)
{
    static const char *const keys[] = {"hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size",
                                       "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings"};
    static const char *const wrong[] = {"0", "-4", "4294967296", "9223372036854775807", "1e3", "\"64\"", "64.5", "true"};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        for (size_t w = 0; w < sizeof wrong / sizeof *wrong; w++)
            refused(keys[k], wrong[w], CALM_EFORMAT, keys[k]);
    refused("num_attention_heads", "5", CALM_EFORMAT, "num_attention_heads 5 is not a multiple of num_key_value_heads 2");
    refused("num_key_value_heads", "3", CALM_EFORMAT, "num_key_value_heads 3");
    refused("head_dim", "15", CALM_EFORMAT, "head_dim 15 is odd");
    refused("head_dim", "16777216", CALM_EFORMAT, "4 heads of 16777216");
    refused("num_hidden_layers", "5000", CALM_EFORMAT, "num_hidden_layers");
}
END_OF_TEST

TEST(windows)
{
    refused("layer_types", "[\"full_attention\"]", CALM_EFORMAT, "\"layer_types\": 1 entries, expected 3");
    refused("layer_types", "[\"full_attention\", \"full_attention\", \"linear_attention\"]", CALM_EUNSUPPORTED,
            "\"layer_types\"[2]: \"linear_attention\"");
    refused("layer_types", "[\"full_attention\", \"sliding_attention\", \"full_attention\"]", CALM_EFORMAT,
            "block 1 slides, but \"sliding_window\" is missing");
    refused("use_sliding_window", "\"yes\"", CALM_EFORMAT, "use_sliding_window");
    refused("sliding_window", "0", CALM_EFORMAT, "sliding_window");
    accepted("layer_types", "null");
    calm_config config = accepted("sliding_window", "128");    /* not used */
    ck_assert_uint_eq(config.window[0] + config.window[1] + config.window[2], 0);
}
END_OF_TEST

int main(void)
{
    return run_tests("config", (const TTest *[]){both_spellings_are_the_same, absent_keys, architectures,
                                                 settings_that_change_the_computation, sizes, windows, NULL});
}
