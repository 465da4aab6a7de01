/* RoBERTa: BERT whose positions begin after the row of the padding token, with another head for masked tokens.
 *
 * Reference: arXiv 1907.11692; transformers' modeling_roberta.py. */
#include "ptq/families/bert.h"

/* There is no final norm: each block ends with a norm. */
const calm_arch calm_arch_roberta = {
    .name = "roberta",
    .classes = "RobertaForMaskedLM|RobertaForCausalLM",
    .stem = "Roberta",
    CALM_ROBERTA_ARCH,
};
