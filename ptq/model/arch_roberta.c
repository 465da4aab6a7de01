/* RoBERTa: BERT whose positions begin behind the row of the padding token, with another head for masked tokens.
 *
 * Reference: arXiv 1907.11692; transformers' modeling_roberta.py. */
#include "ptq/model/bert.h"

/* An encoder has no norm behind its blocks: each ends with one. */
const calm_arch calm_arch_roberta = {
    .name = "roberta",
    .classes = "RobertaForMaskedLM|RobertaForCausalLM",
    .stem = "Roberta",
    CALM_ROBERTA_ARCH,
};
