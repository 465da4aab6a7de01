/* XLM-RoBERTa (also multilingual E5, BGE-M3): RoBERTa with a vocabulary of pieces of many languages.
 *
 * Reference: arXiv 1911.02116; transformers' modeling_xlm_roberta.py. */
#include "ptq/families/bert.h"

/* Only classes and model type differ from RoBERTa's. */
const calm_arch calm_arch_xlm_roberta = {
    .name = "xlm_roberta",
    .classes = "XLMRobertaForMaskedLM|XLMRobertaForCausalLM",
    .model_types = "xlm-roberta",
    .stem = "XLMRoberta",
    CALM_ROBERTA_ARCH,
};
