/* RoBERTa: BERT whose positions begin behind the row of the padding token, with another head for masked tokens.
 *
 * Reference: arXiv 1907.11692; transformers' modeling_roberta.py. */
#include "ptq/model/bert.h"

/* An encoder has no norm behind its blocks: each ends with one. */
const calm_arch calm_arch_roberta = {
    .name = "roberta",
    .classes = "RobertaForMaskedLM",
    .stem = "Roberta",
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
