/* config.json: both spellings of every family, and every setting that is refused with file and key. */
#include "ptq/arch/config.h"

#include "ptq/arch/arch.h"
#include "ptq/base/text.h"
#include "tests/support/config_cases.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

#define N(array) (sizeof(array) / sizeof *(array))

/* ---- spellings ---- */

static calm_config read_text(const char *text)
{
    calm_json *root;
    calm_config config;
    ck_ok(calm_json_parse(ctx, "text", text, strlen(text), &root));
    ck_ok(calm_config_read(ctx, "text", root, &config));
    calm_json_free(root);
    return config;
}

static void same_rope(const calm_rope_config *a, const calm_rope_config *b)
{
    ck_assert(a->kind == b->kind && a->theta == b->theta && a->factor == b->factor && a->rotary == b->rotary &&
              a->m == b->m);
    ck_assert(a->original == b->original && a->low_freq == b->low_freq && a->high_freq == b->high_freq);
    ck_assert(a->beta_fast == b->beta_fast && a->beta_slow == b->beta_slow && a->truncate == b->truncate);
    ck_assert(!a->long_factor == !b->long_factor);
    for (size_t i = 0; a->long_factor && i < a->rotary / 2; i++)
        ck_assert(a->long_factor[i] == b->long_factor[i] && a->short_factor[i] == b->short_factor[i]);
}

static void same_config(const char *first, const char *second)
{
    const calm_config a = read_text(first), b = read_text(second);
    ck_assert(a.arch == b.arch && a.hidden == b.hidden && a.inner == b.inner && a.n_blocks == b.n_blocks &&
              a.vocab == b.vocab);
    ck_assert(a.n_heads == b.n_heads && a.n_kv == b.n_kv && a.head_dim == b.head_dim &&
              a.max_positions == b.max_positions);
    ck_assert(a.norm_eps == b.norm_eps && a.tied == b.tied && a.dtype == b.dtype && a.activation == b.activation);
    ck_assert(memcmp(a.bias, b.bias, sizeof a.bias) == 0);
    ck_assert(a.attention_scale == b.attention_scale && a.attention_cap == b.attention_cap &&
              a.logit_cap == b.logit_cap);
    ck_assert(a.moe.n_experts == b.moe.n_experts && a.moe.top_k == b.moe.top_k && a.moe.inner == b.moe.inner);
    ck_assert(a.moe.shared_inner == b.moe.shared_inner && a.moe.norm_top_k == b.moe.norm_top_k);
    for (size_t i = 0; i < a.n_blocks; i++)
        ck_assert(a.window[i] == b.window[i] && a.local_rope[i] == b.local_rope[i] &&
                  a.moe.sparse[i] == b.moe.sparse[i]);
    same_rope(&a.rope[CALM_ROPE_GLOBAL], &b.rope[CALM_ROPE_GLOBAL]);
    same_rope(&a.rope[CALM_ROPE_LOCAL], &b.rope[CALM_ROPE_LOCAL]);
}

#define SIZES \
    "\"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 4, \"vocab_size\": 100, " \
    "\"num_attention_heads\": 4, " \
    "\"num_key_value_heads\": 2, \"max_position_embeddings\": 4096, "
#define CLASS(name, type) "{\"architectures\": [\"" name "\"], \"model_type\": \"" type "\", " SIZES
#define FULL  "\"full_attention\""
#define SLIDE "\"sliding_attention\""

/* Classic settings, and the same as transformers 5 saves them. */
static const char *const spellings[][2] = {
    {CLASS("LlamaForCausalLM",
           "llama") "\"rope_theta\": 500000.0, \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, "
                    "\"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 8192}, "
                    "\"torch_dtype\": \"float16\"}",
     CLASS(
         "LlamaForCausalLM",
         "llama") "\"rope_parameters\": {\"rope_theta\": 500000.0, \"rope_type\": \"llama3\", \"factor\": 8.0, "
                  "\"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 8192}, "
                  "\"dtype\": \"float16\", "
                  "\"head_dim\": 16, \"mlp_bias\": false, \"attention_bias\": false, \"tie_word_embeddings\": false}"},
    {CLASS("MistralForCausalLM", "mistral") "\"rope_theta\": 1000000, \"torch_dtype\": \"float32\"}",
     CLASS("MistralForCausalLM",
           "mistral") "\"rope_parameters\": {\"rope_theta\": 1000000, \"rope_type\": \"default\"}, "
                      "\"sliding_window\": 4096, \"head_dim\": null, \"dtype\": \"float32\"}"},
    {CLASS("Qwen2ForCausalLM",
           "qwen2") "\"use_sliding_window\": true, \"sliding_window\": 32, \"max_window_layers\": 3, "
                    "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": "
                    "1024}, \"rope_theta\": 1e6}",
     CLASS("Qwen2ForCausalLM",
           "qwen2") "\"use_sliding_window\": true, \"sliding_window\": 32, \"max_window_layers\": 3, "
                    "\"layer_types\": [" FULL ", " FULL ", " FULL ", " SLIDE
                    "], \"rope_parameters\": {\"type\": \"yarn\", \"rope_type\": \"yarn\", "
                    "\"factor\": 4.0, \"original_max_position_embeddings\": 1024, \"rope_theta\": 1e6}, \"dtype\": "
                    "\"bfloat16\"}"},
    {CLASS("Qwen3ForCausalLM", "qwen3") "\"sliding_window\": 32, \"rope_theta\": 1e6, \"rope_scaling\": null}",
     CLASS("Qwen3ForCausalLM", "qwen3") "\"sliding_window\": null, \"use_sliding_window\": false, \"head_dim\": 128, "
                                        "\"layer_types\": [" FULL ", " FULL ", " FULL ", " FULL
                                        "], \"rope_scaling\": {}, "
                                        "\"rope_parameters\": {\"rope_theta\": 1e6, \"rope_type\": \"default\"}}"},
    {CLASS("Qwen2MoeForCausalLM",
           "qwen2_moe") "\"num_experts\": 8, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 32, "
                        "\"shared_expert_intermediate_size\": 80, \"sliding_window\": 32768, \"use_sliding_window\": "
                        "false}",
     CLASS("Qwen2MoeForCausalLM",
           "qwen2_moe") "\"num_experts\": 8, \"num_local_experts\": null, \"num_experts_per_tok\": 2, "
                        "\"moe_intermediate_size\": 32, \"shared_expert_intermediate_size\": 80, \"sliding_window\": "
                        "0, \"use_sliding_window\": false, "
                        "\"layer_types\": [" FULL ", " FULL ", " FULL ", " FULL
                        "], \"qkv_bias\": true, \"mlp_only_layers\": [], "
                        "\"rope_parameters\": {\"rope_theta\": 10000.0, \"rope_type\": \"default\"}}"},
    {CLASS("Qwen3MoeForCausalLM",
           "qwen3_moe") "\"num_experts\": 8, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 32, "
                        "\"decoder_sparse_step\": 2, \"mlp_only_layers\": [1], \"norm_topk_prob\": true, \"head_dim\": "
                        "32}",
     CLASS("Qwen3MoeForCausalLM",
           "qwen3_moe") "\"num_local_experts\": 8, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 32, "
                        "\"decoder_sparse_step\": 2, \"mlp_only_layers\": [1], \"norm_topk_prob\": true, \"head_dim\": "
                        "32, \"sliding_window\": null, "
                        "\"rope_parameters\": {\"rope_theta\": 10000.0, \"rope_type\": \"default\"}}"},
    {CLASS("Gemma2ForCausalLM", "gemma2") "\"sliding_window\": 64}",
     CLASS("Gemma2ForCausalLM",
           "gemma2") "\"sliding_window\": 64, \"layer_types\": [" SLIDE ", " FULL ", " SLIDE ", " FULL "], "
                     "\"tie_word_embeddings\": true, \"attn_logit_softcapping\": 50.0, \"final_logit_softcapping\": "
                     "30.0, \"head_dim\": 256, "
                     "\"query_pre_attn_scalar\": 256, \"hidden_activation\": \"gelu_pytorch_tanh\", "
                     "\"use_bidirectional_attention\": null, "
                     "\"rope_parameters\": {\"rope_theta\": 10000.0, \"rope_type\": \"default\"}}"},
    {CLASS("Gemma3ForCausalLM",
           "gemma3_text") "\"sliding_window\": 64, \"sliding_window_pattern\": 3, \"rope_theta\": 500000.0, "
                          "\"rope_local_base_freq\": 2000.0, \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": "
                          "8.0}}",
     CLASS("Gemma3ForCausalLM", "gemma3_text") "\"sliding_window\": 64, \"layer_types\": [" SLIDE ", " SLIDE ", " FULL
                                               ", " SLIDE "], "
                                               "\"_sliding_window_pattern\": 3, \"rope_parameters\": "
                                               "{\"full_attention\": {\"rope_type\": \"linear\", \"factor\": 8.0, "
                                               "\"rope_theta\": 500000.0}, \"sliding_attention\": {\"rope_type\": "
                                               "\"default\", \"rope_theta\": 2000.0}}}"},
    {CLASS("Phi3ForCausalLM",
           "phi3") "\"partial_rotary_factor\": 0.25, \"original_max_position_embeddings\": 512, \"rope_theta\": 1e4, "
                   "\"rope_scaling\": {\"type\": \"su\", \"long_factor\": [1.5, 2], \"short_factor\": [1, 1.1]}}",
     CLASS("Phi3ForCausalLM", "phi3") "\"partial_rotary_factor\": 0.25, \"original_max_position_embeddings\": 512, "
                                      "\"sliding_window\": null, \"rope_parameters\": {\"rope_type\": \"longrope\", "
                                      "\"type\": \"su\", \"long_factor\": [1.5, 2], "
                                      "\"short_factor\": [1, 1.1], \"rope_theta\": 1e4, \"partial_rotary_factor\": "
                                      "0.25, \"original_max_position_embeddings\": 512}}"},
    {CLASS("Olmo2ForCausalLM", "olmo2") "\"rope_theta\": 500000}",
     CLASS(
         "Olmo2ForCausalLM",
         "olmo2") "\"rms_norm_eps\": 1e-5, \"rope_parameters\": {\"rope_theta\": 500000, \"rope_type\": \"default\"}}"},
};

TEST(both_spellings_are_the_same)
{
    for (size_t i = 0; i < N(spellings); i++)
        same_config(spellings[i][0], spellings[i][1]);
}
END_OF_TEST

TEST(what_the_spellings_mean)
{
    const calm_config qwen2 = read_text(spellings[2][1]), moe = read_text(spellings[5][1]),
                      gemma3 = read_text(spellings[7][0]);
    ck_assert(qwen2.window[2] == 0 && qwen2.window[3] == 32);
    ck_assert(!moe.moe.sparse[0] && !moe.moe.sparse[1] && !moe.moe.sparse[2] && moe.moe.sparse[3]);
    ck_assert(gemma3.window[1] == 64 && gemma3.window[2] == 0 && gemma3.local_rope[1] && !gemma3.local_rope[2]);
    ck_assert(gemma3.rope[CALM_ROPE_GLOBAL].kind == CALM_ROPE_LINEAR &&
              gemma3.rope[CALM_ROPE_LOCAL].kind == CALM_ROPE_DEFAULT);
    ck_assert(gemma3.embedding_scale == 8 && gemma3.attention_scale == 0.0625f);
}
END_OF_TEST

/* ---- missing keys ---- */

/* Blocks that are all mixtures have no plain MLP, and one family has no key for its width. */
static bool has_key(const char *family, const char *key)
{
    return strcmp(family, "qwen3_5_moe") != 0 || strcmp(key, "intermediate_size") != 0;
}

TEST(absent_keys)
{
    for (size_t f = 0; tiny_families[f]; f++) {
        static const char *const needed[] = {"hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size",
                                             "num_attention_heads"};
        static const char tied[] = "bert bert_mlm gemma2 gemma3 gemma3n gemma4 ernie4_5 ernie4_5_moe smollm3 "
                                   "cohere2 starcoder2 lfm2 lfm2_moe";
        /* Two rows of tiny_families may be of one family. */
        const char *const *row = &tiny_families[f];
        const char *family = strncmp(*row, "bert", 4) == 0             ? "bert"
                             : strcmp(*row, "granite_hybrid") == 0 ? "granitemoehybrid"
                             : strncmp(*row, "nemotron", 8) == 0   ? "nemotron_h"
                                                                    : *row;
        for (size_t i = 0; i < N(needed); i++)
            /* Some families have a list from which the number of blocks follows. */
            if (has_key(tiny_families[f], needed[i]) && (i != 2 || strcmp(family, "nemotron_h") != 0))
                config_refuses(tiny_families[f], needed[i], NULL, CALM_EFORMAT, needed[i]);
        ck_assert_int_eq(config_with(tiny_families[f], "torch_dtype", NULL).dtype, CALM_BF16);
        ck_assert_int_eq(config_with(tiny_families[f], "tie_word_embeddings", NULL).tied,
                         calm_text_listed(tied, ' ', tiny_families[f]));
        /* Found by model_type. */
        ck_assert_str_eq(config_with(tiny_families[f], "architectures", NULL).arch->name, family);
    }
    ck_assert(config_with("llama", "rope_theta", NULL).rope[CALM_ROPE_GLOBAL].theta == 10000);
    ck_assert(config_with("gemma3", "rope_theta", NULL).rope[CALM_ROPE_GLOBAL].theta == 1000000);
    ck_assert(config_with("llama", "rms_norm_eps", NULL).norm_eps == 1e-6f);
    ck_assert(config_with("olmo2", "rms_norm_eps", NULL).norm_eps == 1e-5f);
    ck_assert(config_with("bert", "layer_norm_eps", NULL).norm_eps == 1e-12f);
    ck_assert_uint_eq(config_with("bert", "type_vocab_size", NULL).n_types, 2);
    ck_assert_uint_eq(config_with("phi3", "max_position_embeddings", NULL).max_positions, 4096);
    ck_assert_uint_eq(config_with("llama", "max_position_embeddings", NULL).max_positions, 2048);
    ck_assert_uint_eq(config_with("qwen3", "head_dim", NULL).head_dim, 128);    /* not hidden / heads */
    ck_assert_uint_eq(config_with("gemma2", "head_dim", NULL).head_dim, 256);
    ck_assert_uint_eq(config_with("qwen3_moe", "head_dim", NULL).head_dim, 8);
    static const char *const moe[] = {"num_experts", "num_experts_per_tok", "moe_intermediate_size"};
    for (size_t i = 0; i < N(moe); i++)
        config_refuses("qwen3_moe", moe[i], NULL, CALM_EFORMAT, moe[i]);
    config_refuses("qwen2_moe", "shared_expert_intermediate_size", NULL, CALM_EFORMAT,
                   "shared_expert_intermediate_size");
}
END_OF_TEST

/* Families differ in the default; null is the number of query heads. */
TEST(key_value_heads)
{
    ck_assert_uint_eq(config_with("llama", "num_key_value_heads", NULL).n_kv, 4);
    ck_assert_uint_eq(config_with("gemma2", "num_key_value_heads", NULL).n_kv, 4);
    config_refuses("qwen2", "num_key_value_heads", NULL, CALM_EFORMAT, "num_key_value_heads 32");
    config_refuses("qwen2_moe", "num_key_value_heads", NULL, CALM_EFORMAT, "num_key_value_heads 16");
    config_refuses("mistral", "num_key_value_heads", NULL, CALM_EFORMAT, "num_key_value_heads 8");
    for (size_t f = 0; tiny_families[f]; f++)
        ck_assert_uint_eq(config_with(tiny_families[f], "num_key_value_heads", "null").n_kv, 4);
}
END_OF_TEST

TEST(architectures)
{
    config_refuses("qwen3", "architectures", "[\"GPT2LMHeadModel\"]", CALM_EUNSUPPORTED,
                   "architecture GPT2LMHeadModel");
    config_refuses("qwen3", "architectures", "[\"Gemma3ForConditionalGeneration\"]", CALM_EFORMAT,
                   "\"text_config\": expected an object");
    config_refuses("qwen3", "architectures", "[\"Gemma9ForCausalLM\"]", CALM_EUNSUPPORTED, "gemma3");
    size_t n;
    const calm_arch *const *known = calm_architectures(&n);
    for (size_t i = 0; i < n; i++)
        config_refuses("llama", "architectures", "[\"Other\"]", CALM_EUNSUPPORTED, known[i]->name);
    calm_config config;
    calm_json *root;
    ck_ok(calm_json_parse(ctx, "x", "{}", 2, &root));
    ck_fails(calm_config_read(ctx, "x", root, &config), CALM_EUNSUPPORTED, "(none named)");
    calm_json_free(root);
    ck_ok(calm_json_parse(ctx, "x", "[1]", 3, &root));
    ck_fails(calm_config_read(ctx, "x", root, &config), CALM_EFORMAT, "expected an object");
    calm_json_free(root);
    ck_fails(calm_json_parse(ctx, "x", "{\"vocab_size\": 3, \"vocab_size\": 4}", 34, &root), CALM_EFORMAT, "duplicate");
}
END_OF_TEST

/* ---- out of range ---- */

TEST(sizes)
{
    static const char *const keys[] = {"hidden_size", "intermediate_size",      "num_hidden_layers",
                                       "vocab_size",  "num_attention_heads",    "num_key_value_heads",
                                       "head_dim",    "max_position_embeddings"};
    static const char *const experts[] = {"num_experts", "num_experts_per_tok", "moe_intermediate_size",
                                          "decoder_sparse_step", "shared_expert_intermediate_size"};
    static const char *const wrong[] = {"0",    "-4",   "4294967296", "9223372036854775807", "1e3", "\"64\"", "64.5",
                                        "true", "[64]", "{}"};
    for (size_t w = 0; w < N(wrong); w++) {
        for (size_t f = 0; tiny_families[f]; f++)
            for (size_t k = 0; k < N(keys); k++)
                if (has_key(tiny_families[f], keys[k]))
                    config_refuses(tiny_families[f], keys[k], wrong[w], CALM_EFORMAT, keys[k]);
        for (size_t k = 0; k < N(experts); k++)
            config_refuses("qwen2_moe", experts[k], wrong[w], CALM_EFORMAT, experts[k]);
        config_refuses("bert", "type_vocab_size", wrong[w], CALM_EFORMAT, "type_vocab_size");
        config_refuses("gemma3", "sliding_window_pattern", wrong[w], CALM_EFORMAT, "sliding_window_pattern");
    }
    config_refuses("qwen3", "num_attention_heads", "5", CALM_EFORMAT,
                   "num_attention_heads 5 is not a multiple of num_key_value_heads 2");
    config_refuses("qwen3", "num_key_value_heads", "3", CALM_EFORMAT, "num_key_value_heads 3");
    config_refuses("qwen3", "head_dim", "15", CALM_EFORMAT, "15 of head_dim 15 channels");
    config_refuses("qwen3", "head_dim", "16777216", CALM_EFORMAT, "4 heads of 16777216");
    config_refuses("qwen3", "num_hidden_layers", "5000", CALM_EFORMAT, "num_hidden_layers");
    config_refuses("qwen3_moe", "num_experts_per_tok", "6", CALM_EFORMAT,
                   "\"num_experts_per_tok\": expected 1 to 5, found 6");
    config_refuses("qwen3_moe", "num_experts", "20000", CALM_EFORMAT, "num_experts");
    config_with("qwen3_moe", "num_experts", "16384");
    config_with("qwen3_moe", "num_hidden_layers", "4096");
    config_refuses("qwen3_moe", "num_hidden_layers", "4097", CALM_EFORMAT, "num_hidden_layers");
}
END_OF_TEST

/* Heads whose width the config does not state must divide the hidden size. */
TEST(heads_that_do_not_divide)
{
    static const char text[] = "{\"architectures\": [\"%s\"], \"hidden_size\": 66, \"intermediate_size\": 96, "
                               "\"num_hidden_layers\": 1, \"vocab_size\": 100, "
                               "\"num_attention_heads\": 4, \"num_key_value_heads\": 4%s}";
    static const char *const classes[] = {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM",
                                          "Phi3ForCausalLM",  "Olmo2ForCausalLM",   "BertModel"};
    for (size_t i = 0; i < N(classes); i++) {
        calm_json *root;
        calm_config config;
        const char *bad = test_format(text, classes[i], ""),
                   *good = test_format(text, classes[i], ", \"head_dim\": 16");
        ck_ok(calm_json_parse(ctx, "x", bad, strlen(bad), &root));
        ck_fails(calm_config_read(ctx, "x", root, &config), CALM_EFORMAT,
                 "hidden_size 66 is not a multiple of num_attention_heads 4");
        calm_json_free(root);
        ck_assert_uint_eq(read_text(good).head_dim, 16);
    }
}
END_OF_TEST

TEST(other_values)
{
    config_refuses("llama", "rms_norm_eps", "-1e-6", CALM_EFORMAT, "rms_norm_eps");
    config_refuses("llama", "rms_norm_eps", "1e300", CALM_EFORMAT, "rms_norm_eps");
    config_refuses("llama", "rms_norm_eps", "\"1e-6\"", CALM_EFORMAT, "rms_norm_eps");
    config_refuses("bert", "layer_norm_eps", "2", CALM_EFORMAT, "layer_norm_eps");
    config_refuses("llama", "torch_dtype", "\"float8_e4m3fn\"", CALM_EUNSUPPORTED, "float8_e4m3fn");
    config_refuses("llama", "dtype", "\"int8\"", CALM_EUNSUPPORTED, "int8");
    config_refuses("llama", "dtype", "16", CALM_EFORMAT, "dtype");
    static const char *const switches[][2] = {{"llama", "tie_word_embeddings"},
                                              {"llama", "attention_bias"},
                                              {"llama", "mlp_bias"},
                                              {"qwen2", "use_sliding_window"},
                                              {"qwen2_moe", "qkv_bias"},
                                              {"qwen3_moe", "norm_topk_prob"},
                                              {"olmo2", "attention_bias"}};
    for (size_t i = 0; i < N(switches); i++) {
        config_refuses(switches[i][0], switches[i][1], "1", CALM_EFORMAT, switches[i][1]);
        config_refuses(switches[i][0], switches[i][1], "\"true\"", CALM_EFORMAT, switches[i][1]);
    }
    static const char *const scalars[] = {"query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping"};
    for (size_t i = 0; i < N(scalars); i++) {
        config_refuses("gemma2", scalars[i], "0", CALM_EFORMAT, scalars[i]);
        config_refuses("gemma2", scalars[i], "-50", CALM_EFORMAT, scalars[i]);
        config_refuses("gemma2", scalars[i], "1e30", CALM_EFORMAT, scalars[i]);
    }
    config_refuses("bert", "position_embedding_type", "\"relative_key\"", CALM_EUNSUPPORTED, "relative_key");
}
END_OF_TEST

TEST(soft_caps)
{
    ck_assert(config_with("gemma2", "attn_logit_softcapping", NULL).attention_cap == 50);
    ck_assert(config_with("gemma2", "attn_logit_softcapping", "null").attention_cap == 0);
    ck_assert(config_with("gemma2", "final_logit_softcapping", "7.5").logit_cap == 7.5f);
    ck_assert(config_with("gemma3", "final_logit_softcapping", NULL).logit_cap == 0);
    ck_assert(config_with("gemma3", "final_logit_softcapping", "30").logit_cap == 30);
    config_refuses("gemma3", "attn_logit_softcapping", "50", CALM_EUNSUPPORTED, "attn_logit_softcapping");
}
END_OF_TEST

TEST(activations)
{
    static const struct {
        const char *name;
        calm_activation activation;
    } known[] = {{"silu", CALM_ACTIVATION_SILU},     {"swish", CALM_ACTIVATION_SILU}, {"gelu", CALM_ACTIVATION_GELU},
                 {"gelu_new", CALM_ACTIVATION_GELU_TANH}, {"gelu_pytorch_tanh", CALM_ACTIVATION_GELU_TANH},
                 {"quick_gelu", CALM_ACTIVATION_GELU_QUICK},
                 {"relu", CALM_ACTIVATION_RELU},          {"relu2", CALM_ACTIVATION_RELU2}};
    for (size_t f = 0; tiny_families[f]; f++) {
        const char *key = strncmp(tiny_families[f], "gemma", 5) == 0      ? "hidden_activation"
                          : strncmp(tiny_families[f], "nemotron", 8) == 0 ? "mlp_hidden_act"
                                                                          : "hidden_act";
        if (strncmp(tiny_families[f], "lfm2", 4) == 0)    /* always silu */
            continue;
        for (size_t i = 0; i < N(known); i++)
            ck_assert_int_eq(config_with(tiny_families[f], key, test_format("\"%s\"", known[i].name)).activation,
                             known[i].activation);
        config_refuses(tiny_families[f], key, "\"mish\"", CALM_EUNSUPPORTED, "mish");
        config_refuses(tiny_families[f], key, "3", CALM_EFORMAT, key);
    }
    ck_assert_int_eq(config_with("gemma2", "hidden_act", "\"relu\"").activation, CALM_ACTIVATION_GELU_TANH);
    config_refuses("llama", "hidden_activation", "\"relu\"", CALM_EUNSUPPORTED, "hidden_activation");
}
END_OF_TEST

/* ---- windows and experts ---- */

TEST(windows)
{
    config_refuses("gpt_oss", "layer_types", "[" FULL "]", CALM_EFORMAT, "\"layer_types\": 1 entries, expected 2");
    config_refuses("gpt_oss", "layer_types", "[" SLIDE ", \"chunked_attention\"]", CALM_EUNSUPPORTED,
                   "\"layer_types\"[1]: \"chunked_attention\" is not supported; expected full_attention");
    config_refuses("gpt_oss", "swiglu_limit", "0", CALM_EFORMAT, "swiglu_limit");
    config_refuses("gpt_oss", "swiglu_limit", "\"7\"", CALM_EFORMAT, "swiglu_limit");
    config_refuses("gpt_oss", "rope_parameters", NULL, CALM_EFORMAT, "rope_parameters");
    config_refuses("gpt_oss", "num_experts_per_tok", "6", CALM_EFORMAT, "num_experts_per_tok");
    config_refuses("qwen3", "layer_types", "[\"full_attention\"]", CALM_EFORMAT,
                   "\"layer_types\": 1 entries, expected 2");
    config_refuses("qwen3", "layer_types", "[" FULL ", " FULL ", " FULL "]", CALM_EFORMAT,
                   "\"layer_types\": 3 entries");
    config_refuses("qwen3", "layer_types", "\"" "full_attention\"", CALM_EFORMAT, "\"layer_types\": 0 entries");
    config_refuses("qwen3", "layer_types", "[" FULL ", \"linear_attention\"]", CALM_EUNSUPPORTED,
                   "\"layer_types\"[1]: \"linear_attention\"");
    config_refuses("qwen3", "layer_types", "[" FULL ", 3]", CALM_EUNSUPPORTED, "\"layer_types\"[1]");
    config_refuses("phi3", "layer_types", "[" FULL ", " SLIDE "]", CALM_EFORMAT,
                   "block 1 slides, but \"sliding_window\" is 0 or missing");
    config_refuses("qwen3", "use_sliding_window", "\"yes\"", CALM_EFORMAT, "use_sliding_window");
    config_refuses("qwen3", "max_window_layers", "-1", CALM_EFORMAT, "max_window_layers");
    static const char *const sliding[] = {"mistral",   "qwen2",  "qwen3",  "qwen2_moe",
                                          "qwen3_moe", "gemma2", "gemma3", "phi3"};
    for (size_t i = 0; i < N(sliding); i++) {
        config_refuses(sliding[i], "sliding_window", "-1", CALM_EFORMAT, "sliding_window");
        config_refuses(sliding[i], "sliding_window", "9223372036854775807", CALM_EFORMAT, "sliding_window");
        config_refuses(sliding[i], "sliding_window", "\"4096\"", CALM_EFORMAT, "sliding_window");
        ck_assert_uint_eq(config_with(sliding[i], "sliding_window", "null").window[0], 0);
    }
    config_refuses("mistral", "sliding_window", "0", CALM_EFORMAT, "\"sliding_window\" is 0");
    config_refuses("gemma2", "sliding_window", "0", CALM_EFORMAT, "\"sliding_window\" is 0");
    ck_assert_uint_eq(config_with("qwen3", "sliding_window", "0").window[1], 0);    /* no block slides */
    ck_assert_uint_eq(config_with("qwen3", "sliding_window", "128").window[1], 0);
    ck_assert_uint_eq(config_with("mistral", "sliding_window", "128").window[1], 128);
    ck_assert_uint_eq(config_with("mistral", "sliding_window", NULL).window[1], 4096);
    ck_assert_uint_eq(config_with("phi3", "sliding_window", NULL).window[1], 0);
    ck_assert_uint_eq(config_with("gemma2", "sliding_window", NULL).window[0], 4096);
    config_refuses("llama", "sliding_window", "128", CALM_EUNSUPPORTED, "sliding_window");
    config_refuses("olmo2", "layer_types", "[" FULL ", " SLIDE "]", CALM_EUNSUPPORTED, "layer_types");
}
END_OF_TEST

TEST(dense_blocks_of_mixtures)
{
    ck_assert(!config_with("qwen3_moe", "mlp_only_layers", "[0]").moe.sparse[0]);
    ck_assert(config_with("qwen3_moe", "mlp_only_layers", "[0]").moe.sparse[1]);
    ck_assert(config_with("qwen3_moe", "mlp_only_layers", "[7]").moe.sparse[1]);
    ck_assert(config_with("qwen3_moe", "mlp_only_layers", "null").moe.sparse[0]);
    ck_assert(!config_with("qwen3_moe", "decoder_sparse_step", "3").moe.sparse[1]);
    static const char *const wrong[] = {"3", "\"0\"", "[\"0\"]", "[-1]", "[0.5]", "[null]", "{\"0\": 1}"};
    for (size_t i = 0; i < N(wrong); i++)
        config_refuses("qwen3_moe", "mlp_only_layers", wrong[i], CALM_EFORMAT, "mlp_only_layers");
}
END_OF_TEST

/* ---- keys that calm does not read ---- */

TEST(unknown_keys)
{
    static const char *const on[][2] = {{"attention_multiplier", "2"},
                                        {"logit_scale", "0.06"},
                                        {"qk_layernorm", "true"},
                                        {"clip_qkv", "8"},
                                        {"num_nextn_predict_layers", "1"},
                                        {"residual_multiplier", "0.22"},
                                        {"add_cross_attention", "true"},
                                        {"rope_interleaved", "true"},
                                        {"alibi", "true"},
                                        {"first_k_dense_replace", "0"},
                                        {"attention_type", "\"mla\""},
                                        {"head_dims", "[1]"},
                                        {"interpolate_factor", "2"},
                                        {"full_attn_mod", "4"},
                                        {"lm_head_bias", "true"}};
    static const char *const off[] = {"null", "false", "[]", "{}", "\"\""};
    for (size_t f = 0; tiny_families[f]; f++)
        for (size_t i = 0; i < N(on); i++)
            if (!calm_text_listed(config_with(tiny_families[f], "_", NULL).arch->keys, ' ', on[i][0]))
                config_refuses(tiny_families[f], on[i][0], on[i][1], CALM_EUNSUPPORTED,
                               test_format("\"%s\"", on[i][0]));
    for (size_t i = 0; i < N(on); i++) {
        for (size_t k = 0; k < N(off); k++)
            config_with("llama", on[i][0], off[k]);
        config_with("llama", test_format("_%s", on[i][0]), on[i][1]);
    }
    config_with("phi3", "interpolate_factor", "1");
    config_refuses("llama", "num_experts", "8", CALM_EUNSUPPORTED, "num_experts");
    config_refuses("bert", "rope_theta", "10000", CALM_EUNSUPPORTED, "rope_theta");
}
END_OF_TEST

/* A decoder with bidirectional attention is another model, even if the key is false; so is a causal encoder. */
TEST(causality)
{
    for (size_t f = 0; tiny_families[f]; f++) {
        const bool encoder = strncmp(tiny_families[f], "bert", 4) == 0;
        config_with(tiny_families[f], "is_causal", encoder ? "false" : "true");
        config_with(tiny_families[f], "is_causal", "null");
        config_refuses(tiny_families[f], "is_causal", encoder ? "true" : "false", CALM_EUNSUPPORTED, "is_causal");
    }
    config_refuses("gemma3", "use_bidirectional_attention", "true", CALM_EUNSUPPORTED, "use_bidirectional_attention");
}
END_OF_TEST

int main(void)
{
    return run_tests("config", (const TTest *[]){both_spellings_are_the_same, what_the_spellings_mean, absent_keys,
                                                 key_value_heads, architectures, sizes, heads_that_do_not_divide,
                                                 other_values, soft_caps, activations, windows,
                                                 dense_blocks_of_mixtures, unknown_keys, causality, NULL});
}
