/* XLM-RoBERTa (also multilingual E5, BGE-M3): RoBERTa with a vocabulary of pieces of many languages.
 *
 * Reference: arXiv 1911.02116; transformers' modeling_xlm_roberta.py. */
#include "ptq/model/bert.h"

/* As RoBERTa's; only classes and model type differ. */
const calm_arch calm_arch_xlm_roberta = {
    .name = "xlm_roberta",
    .classes = "XLMRobertaForMaskedLM",
    .model_types = "xlm-roberta",
    .stem = "XLMRoberta",
    .prefixes = "roberta.|",
    .names = &calm_names_roberta,
    .norm = CALM_NORM_LAYER,
    .encoder = true,
    .both_ways = true,
    .ends = &calm_ends_roberta,
    .default_activation = "gelu",
    .default_tied = true,
    .default_positions = 512,
    .default_eps = 1e-12,
    .keys = CALM_BERT_KEYS,
    .read_config = calm_roberta_read,
};
