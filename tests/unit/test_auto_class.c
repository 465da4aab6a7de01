/* Auto classes: those that transformers 5.23 registers for the classes of the fixtures (modeling_auto.py). */
#include "ptq/model/auto_class.h"

#include "tests/support/harness.h"

static void check(const char *model_class, bool encoder, const char *name, const char *pipeline)
{
    const calm_auto_class found = calm_auto_class_of(model_class, encoder);
    ck_assert_str_eq(found.name, name);
    ck_assert_str_eq(found.pipeline, pipeline);
    ck_assert_int_eq(found.generates, strcmp(pipeline, "text-generation") == 0);
}

TEST(classes_of_decoders_and_wrappers)
{
    check("Qwen3ForCausalLM", false, "AutoModelForCausalLM", "text-generation");
    check("Qwen2_5_VLForConditionalGeneration", false, "AutoModelForImageTextToText", "image-text-to-text");
    check("Qwen3ForSequenceClassification", false, "AutoModelForSequenceClassification", "text-classification");
    check("Qwen3ForTokenClassification", false, "AutoModelForTokenClassification", "token-classification");
    check("LlamaForQuestionAnswering", false, "AutoModelForQuestionAnswering", "question-answering");
    check("Qwen3Model", false, "AutoModel", "feature-extraction");
}
END_OF_TEST

TEST(encoders_are_embedding_models)
{
    check("BertForMaskedLM", true, "AutoModel", "sentence-similarity");
    check("Gemma3TextModel", true, "AutoModel", "sentence-similarity");
}
END_OF_TEST

int main(void)
{
    return run_tests("auto_class",
                     (const TTest *[]){classes_of_decoders_and_wrappers, encoders_are_embedding_models, NULL});
}
