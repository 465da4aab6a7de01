/* BERT: an encoder with LayerNorm after each residual addition, biases everywhere, a GELU MLP without a gate, and
 * embeddings of word, position and token type.
 *
 *   x = LayerNorm(word + position + type)
 *   x = LayerNorm(x + o(attn(q(x), k(x), v(x))));  x = LayerNorm(x + down(gelu(up(x))))
 *
 * Reference: arXiv 1810.04805; transformers' modeling_bert.py. */
#include "ptq/families/bert.h"

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    CALM_TRY(calm_bert_types(ctx, path, root, 2, 1, config));
    CALM_TRY(calm_bert_order(ctx, path, root, config));
    calm_bert_biases(config);
    return CALM_OK;
}

static const calm_names names = {CALM_BERT_MODULES, .head = "cls.predictions.decoder"};

static const calm_ends ends = {
    CALM_BERT_EMBEDDINGS,
    .pooler = "pooler.dense",
    CALM_BERT_HEAD("LayerNorm"),
};

const calm_arch calm_arch_bert = {
    .name = "bert",
    .classes = "BertModel|BertForMaskedLM|BertForPreTraining|BertForSequenceClassification|BertForTokenClassification|"
               "BertForQuestionAnswering|BertLMHeadModel",
    .prefixes = "bert.|",
    .names = &names,
    CALM_BERT_DEFAULTS,
    .ends = &ends,
    .keys = CALM_BERT_KEYS,
    .fixed = CALM_BERT_FIXED,
    .read_config = read_config,
};
