/* Auto classes of transformers by the end of a model's class (transformers' modeling_auto.py). */
#include "ptq/model/auto_class.h"

#include "ptq/base/text.h"

calm_auto_class calm_auto_class_of(const char *model_class, bool encoder)
{
    static const struct {
        const char *end;
        calm_auto_class loads;
    } decoders[] = {
        {"ForCausalLM", {"AutoModelForCausalLM", "text-generation", true}},
        {"ForConditionalGeneration", {"AutoModelForImageTextToText", "image-text-to-text", false}},
        {"ForSequenceClassification", {"AutoModelForSequenceClassification", "text-classification", false}},
        {"ForTokenClassification", {"AutoModelForTokenClassification", "token-classification", false}},
        {"ForQuestionAnswering", {"AutoModelForQuestionAnswering", "question-answering", false}},
    };
    /* Encoders come first, since the name of their class may end like a decoder's. */
    if (encoder)
        return (calm_auto_class){"AutoModel", "sentence-similarity", false};
    for (size_t i = 0; i < sizeof decoders / sizeof *decoders; i++)
        if (calm_text_ends_with(model_class, decoders[i].end))
            return decoders[i].loads;
    /* A model without a head, such as "Qwen3Model". */
    return (calm_auto_class){"AutoModel", "feature-extraction", false};
}
