/* Wrappers: the text model of a checkpoint with further models, in all spellings; classes without a head for the
 * next token; refusals. */
#include "ptq/arch/wrapper.h"

#include "ptq/arch/arch.h"
#include "ptq/base/file.h"
#include "ptq/model/head.h"
#include "ptq/model/model.h"
#include "ptq/model/tensor_use.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"
#include "tests/support/wrapped_model.h"
#include "tests/support/write_tensors.h"

static const float vision[6] = {1, 2, 3, 4, 5, 6};

/* Writes the tiny model `inner` with other names next to a vision tower. */
static const char *wrap(const calm_model *inner, const char *prefix, const char *head, const char *config)
{
    const calm_tensor merger = float_tensor("visual.merger.weight", vision, 2, 3, 0);
    return wrap_model(inner, "model.", prefix, head, &merger, 1, config);
}

/* Each prefix in use, with and without a "text_config". */
TEST(prefixes)
{
    static const char *const cases[][4] = {
        {"Qwen3VLForConditionalGeneration", "model.language_model.", "lm_head", "qwen3"},
        {"Qwen3VLForConditionalGeneration", "language_model.model.", "language_model.lm_head", "qwen3"},
        {"Qwen2_5_VLForConditionalGeneration", "model.", "lm_head", "qwen2"},
        {"Mistral3ForConditionalGeneration", "language_model.model.", "language_model.lm_head", "mistral"},
        {"LlavaForConditionalGeneration", "language_model.model.", "language_model.lm_head", "llama"},
        {"LlavaNextForConditionalGeneration", "language_model.model.", "language_model.lm_head", "mistral"},
        {"LlavaOnevisionForConditionalGeneration", "language_model.model.", "language_model.lm_head", "qwen2"},
        {"InternVLForConditionalGeneration", "language_model.model.", "language_model.lm_head", "qwen3"},
        {"Lfm2VlForConditionalGeneration", "model.language_model.", "lm_head", "lfm2"},
        {"Llama4ForConditionalGeneration", "language_model.model.", "language_model.lm_head", "llama4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tiny_model spec = tiny_of(cases[i][3]);
        calm_model *inner, *outer;
        calm_block a, b;
        spec.tied = false;
        const char *source = tiny_model_write(&spec);
        ck_ok(calm_model_open(ctx, source, &inner));
        const char *config = test_format("{\"architectures\": [\"%s\"], \"vision_config\": {\"depth\": 1}, "
                                         "\"image_token_id\": 5, \"text_config\": %s}", cases[i][0],
                                         config_text(source));
        const char *dir = wrap(inner, cases[i][1], cases[i][2], config);
        ck_ok(calm_model_open(ctx, dir, &outer));
        ck_assert(calm_model_is_wrapped(outer) && !calm_model_is_wrapped(inner));
        ck_assert_str_eq(calm_model_class(outer), cases[i][0]);
        ck_assert_str_eq(calm_model_prefix(outer), cases[i][1]);
        ck_assert_str_eq(calm_model_layout(outer)->head, cases[i][2]);
        ck_assert_str_eq(calm_model_config(outer)->arch->name, cases[i][3]);
        ck_assert_int_eq(calm_model_tensor_use(outer, "visual.merger.weight"), CALM_TENSOR_FOREIGN);
        ck_assert_int_eq(calm_model_tensor_use(outer, test_format("%s.weight", cases[i][2])), CALM_TENSOR_READ);
        ck_ok(calm_model_load_block(ctx, inner, 1, &a));
        ck_ok(calm_model_load_block(ctx, outer, 1, &b));
        ck_assert(memcmp(a.weight[CALM_ROLE_O].w, b.weight[CALM_ROLE_O].w,
                         a.weight[CALM_ROLE_O].out * a.weight[CALM_ROLE_O].in * sizeof(float)) == 0);
        calm_model_close(inner);
        calm_model_close(outer);
    }
}
END_OF_TEST

/* Rerankers and embedders have no head for the next token; their own heads are no part of the model. */
TEST(headless_classes)
{
    static const char *const cases[][2] = {{"LlamaModel", ""},
                                           {"LlamaForSequenceClassification", "model."},
                                           {"LlamaForTokenClassification", "model."},
                                           {"LlamaForQuestionAnswering", "transformer."}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const tiny_model spec = tiny_of("llama");
        calm_model *inner, *outer;
        calm_head head;
        const char *source = tiny_model_write(&spec), *text = config_text(source), *rest = strchr(text, ',');
        ck_ok(calm_model_open(ctx, source, &inner));
        const char *config = test_format("{\"architectures\": [\"%s\"]%s", cases[i][0], rest);
        ck_ok(calm_model_open(ctx, wrap(inner, cases[i][1], "", config), &outer));
        ck_assert(calm_model_config(outer)->arch->encoder && !calm_model_config(outer)->arch->both_ways);
        ck_assert(!calm_model_is_wrapped(outer) && !calm_model_layout(outer)->head);
        ck_assert_str_eq(calm_model_config(outer)->arch->name, "llama");
        ck_assert_str_eq(calm_model_prefix(outer), cases[i][1]);
        ck_assert_int_eq(calm_model_tensor_use(outer, "score.weight"), CALM_TENSOR_FOREIGN);
        ck_ok(calm_model_load_head(ctx, outer, &head));
        ck_assert(head.norm.w && !head.table);
        calm_model_close(inner);
        calm_model_close(outer);
    }
}
END_OF_TEST

/* Reads the config `text`, in ctx->out. */
static calm_config read_config(const char *text)
{
    calm_json *root;
    calm_config config;
    ck_ok(calm_json_parse(ctx, "config.json", text, strlen(text), &root));
    const calm_status status = calm_config_read(ctx, "config.json", root, &config);
    ck_assert_msg(status == CALM_OK, "%s", ctx->message);
    calm_json_free(root);
    return config;
}

#define SIZES                                                                                                \
    "\"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 2"
#define HEADS SIZES ", \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"vocab_size\": 100"
#define MROPE "\"rope_theta\": 1000000.0, \"rope_scaling\": {\"type\": \"mrope\", \"mrope_section\": [2, 3, 3]}"

TEST(spellings)
{
    /* Qwen2.5-VL as first published: everything at the top level. */
    calm_config config = read_config("{\"architectures\": [\"Qwen2_5_VLForConditionalGeneration\"], " HEADS ", " MROPE
                                     ", \"vision_config\": {\"depth\": 1}, \"vision_token_id\": 4, "
                                     "\"tie_word_embeddings\": true}");
    ck_assert_str_eq(config.arch->name, "qwen2");
    ck_assert_int_eq(config.rope[0].kind, CALM_ROPE_DEFAULT);
    ck_assert(config.rope[0].theta == 1000000.0 && config.tied);
    /* Gemma 3 leaves out the class's defaults. */
    config = read_config("{\"architectures\": [\"Gemma3ForConditionalGeneration\"], \"text_config\": {" SIZES
                         ", \"model_type\": \"gemma3_text\", \"sliding_window\": 16}, \"torch_dtype\": \"float16\"}");
    ck_assert_uint_eq(config.n_heads, 8);
    ck_assert_uint_eq(config.n_kv, 4);
    ck_assert_uint_eq(config.head_dim, 256);
    ck_assert_uint_eq(config.vocab, 262208);
    ck_assert(config.tied && config.dtype == CALM_F16);
    /* Qwen's text models have other defaults than the families' own classes. */
    static const char silent[] = SIZES ", \"num_attention_heads\": 16, \"vocab_size\": 100";
    config = read_config(test_format("{\"architectures\": [\"Qwen2_5_VLForConditionalGeneration\"], \"text_config\": "
                                     "{%s}}", silent));
    ck_assert(config.n_kv == 8 && config.norm_eps == 1e-5f && config.rope[0].theta == 1e6);
    config = read_config(test_format("{\"architectures\": [\"Qwen3VLForConditionalGeneration\"], \"text_config\": "
                                     "{%s, \"num_key_value_heads\": 2}}", silent));
    ck_assert(config.rope[0].theta == 5e5 && config.max_positions == 128000);
    config = read_config(test_format("{\"architectures\": [\"Qwen3VLMoeForConditionalGeneration\"], \"text_config\": "
                                     "{%s, \"moe_intermediate_size\": 24, \"num_experts\": 4, "
                                     "\"num_experts_per_tok\": 2}}", silent));
    ck_assert(config.rope[0].theta == 5e5 && config.n_kv == 16);
    /* The head is the wrapper's, whatever the text model says; the text model's dtype has precedence over the outer
     * one. */
    config = read_config("{\"architectures\": [\"Qwen3VLForConditionalGeneration\"], \"text_config\": {" HEADS
                         ", \"tie_word_embeddings\": true, \"dtype\": \"float32\"}, \"tie_word_embeddings\": false, "
                         "\"torch_dtype\": \"float16\"}");
    ck_assert(!config.tied && config.dtype == CALM_F32);
}
END_OF_TEST

/* Settings in which the wrapper's class differs from the text model's. */
TEST(differences)
{
    /* Llama 4's head is the text model's. */
    calm_config config = read_config(
        "{\"architectures\": [\"Llama4ForConditionalGeneration\"], \"tie_word_embeddings\": false, \"text_config\": {"
        HEADS ", \"intermediate_size_mlp\": 80, \"num_local_experts\": 4, \"num_experts_per_tok\": 1, "
        "\"tie_word_embeddings\": true}}");
    ck_assert(config.tied);
    /* InternVL's and LFM2-VL's head is the embedding if the file does not say; that of LLaVA is separate. */
    static const struct {
        const char *class_name, *said;
        bool tied;
    } heads[] = {{"InternVL", "", true},
                 {"InternVL", ", \"tie_word_embeddings\": false", false},
                 {"LlavaOnevision", "", false},
                 {"LlavaNext", ", \"tie_word_embeddings\": true", true}};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        config = read_config(test_format("{\"architectures\": [\"%sForConditionalGeneration\"], \"text_config\": {"
                                         HEADS "%s}}", heads[i].class_name, heads[i].said));
        ck_assert(config.tied == heads[i].tied);
    }
    /* Gemma 3's wrapper has no logit cap. */
    static const char *const gemma[2] = {"Gemma3ForCausalLM\"], ",
                                         "Gemma3ForConditionalGeneration\"], \"text_config\": {"};
    for (size_t i = 0; i < 2; i++) {
        config = read_config(test_format("{\"architectures\": [\"%s" HEADS ", \"sliding_window\": 16, "
                                         "\"final_logit_softcapping\": 30.0}%s", gemma[i], i ? "}" : ""));
        ck_assert((config.logit_cap == 0) == (i == 1));
    }
    /* Qwen3-VL has no sliding blocks, also if the text model's type is missing. */
    static const char *const qwen[2] = {
        "Qwen3ForCausalLM\"], ", "Qwen3VLForConditionalGeneration\"], \"text_config\": {"};
    for (size_t i = 0; i < 2; i++) {
        config = read_config(test_format("{\"architectures\": [\"%s" HEADS ", \"sliding_window\": 16, "
                                         "\"use_sliding_window\": true, \"max_window_layers\": 1}%s", qwen[i],
                                         i ? "}" : ""));
        ck_assert_uint_eq(config.window[1], i == 0 ? 16 : 0);
    }
}
END_OF_TEST

static void refuses(const char *text, calm_status expected, const char *words)
{
    calm_json *root;
    calm_config config;
    ck_ok(calm_json_parse(ctx, "config.json", text, strlen(text), &root));
    ck_fails(calm_config_read(ctx, "config.json", root, &config), expected, words);
    calm_ctx_clear_failure(ctx);
    calm_json_free(root);
}

TEST(refusals)
{
    refuses("{\"architectures\": [\"NewVLForConditionalGeneration\"], \"text_config\": {\"model_type\": \"qwen3\"}}",
            CALM_EUNSUPPORTED, "model_type qwen3) is one that calm knows, as qwen3");
    refuses("{\"architectures\": [\"NewVLForConditionalGeneration\"], \"text_config\": {\"model_type\": \"new\"}}",
            CALM_EUNSUPPORTED, "model_type new) is not known either");
    refuses("{\"architectures\": [\"Mistral3ForConditionalGeneration\"], \"text_config\": {\"model_type\": \"new\"}}",
            CALM_EUNSUPPORTED, "\"text_config\": model_type \"new\" is not known; expected that of a family");
    refuses("{\"architectures\": [\"Qwen3VLForConditionalGeneration\"], \"text_config\": []}", CALM_EFORMAT,
            "\"text_config\"");
    refuses("{\"architectures\": [\"Qwen3VLForConditionalGeneration\"], \"text_config\": {" HEADS ", \"new_key\": 3}}",
            CALM_EUNSUPPORTED, "text_config: \"new_key\"");
}
END_OF_TEST

int main(void)
{
    return run_tests("wrapper", (const TTest *[]){prefixes, headless_classes, spellings, differences, refusals, NULL});
}
