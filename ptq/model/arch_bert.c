/* BERT: encoder, LayerNorm after each residual add, biases everywhere, GELU MLP without a gate, embeddings of word,
 * position and type.
 *
 *   x = LayerNorm(word + position + type)
 *   x = LayerNorm(x + o(attn(q(x), k(x), v(x))));  x = LayerNorm(x + down(gelu(up(x))))
 *
 * Reference: arXiv 1810.04805; transformers' modeling_bert.py. */
#include <string.h>

#include "ptq/model/arch.h"

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    const char *positions;
    CALM_TRY(calm_config_size(ctx, path, root, "type_vocab_size", &(int64_t){2}, &config->n_types));
    CALM_TRY(calm_json_need_string(ctx, path, root, "position_embedding_type", "absolute", &positions));
    /* Relative positions add terms to the scores that the attention here does not have. */
    if (strcmp(positions, "absolute") != 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED,
                         "%s: \"position_embedding_type\": \"%s\" is not supported, only \"absolute\"", path,
                         positions);
    for (calm_role role = 0; role < CALM_N_ROLES; role++)
        config->bias[role] = true;
    return CALM_OK;
}

static const calm_names names = {
    .blocks = "encoder.layer",
    .embed = "embeddings.word_embeddings",
    .head = "cls.predictions.decoder",
    .role = {[CALM_ROLE_Q] = "attention.self.query", [CALM_ROLE_K] = "attention.self.key",
             [CALM_ROLE_V] = "attention.self.value", [CALM_ROLE_O] = "attention.output.dense",
             [CALM_ROLE_UP] = "intermediate.dense", [CALM_ROLE_DOWN] = "output.dense"},
    .norm = {[CALM_SUBLAYER_ATTENTION] = {[CALM_NORM_RESIDUAL] = "attention.output.LayerNorm"},
             [CALM_SUBLAYER_MLP] = {[CALM_NORM_RESIDUAL] = "output.LayerNorm"}},
};

const calm_arch calm_arch_bert = {
    .name = "bert",
    .classes = "BertModel|BertForMaskedLM|BertForSequenceClassification|BertForPreTraining",
    .prefixes = "bert.|",
    .names = &names,
    .norm = CALM_NORM_LAYER,
    .encoder = true,
    .both_ways = true,
    .bert = true,
    .default_tied = true,
    .default_positions = 512,
    .default_eps = 1e-12,
    .keys = "type_vocab_size position_embedding_type directionality pooler_fc_size pooler_num_attention_heads "
            "pooler_num_fc_layers pooler_size_per_head pooler_type",    /* those from directionality on do nothing */
    .read_config = read_config,
};
