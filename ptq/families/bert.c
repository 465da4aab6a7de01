/* Code that the families around BERT share. */
#include "ptq/families/bert.h"

/* The blocks are BERT's; the head differs. */
const calm_names calm_names_roberta = {CALM_BERT_MODULES, .head = "lm_head.decoder"};
const calm_names calm_names_rotary_bert = {
    .blocks = "encoder.layer",
    .role = {[CALM_ROLE_FUSED_QKV] = "attention.qkv_proj", [CALM_ROLE_O] = "attention.dense",
             [CALM_ROLE_FUSED_GATE_UP] = "mlp.gate_up_proj", [CALM_ROLE_DOWN] = "mlp.down_proj"}};
const calm_ends calm_ends_roberta = {CALM_BERT_EMBEDDINGS, CALM_ROBERTA_HEAD, .pooler = "pooler.dense"};

calm_status calm_bert_types(calm_ctx *ctx, const char *path, const calm_json *root, int64_t fallback, int64_t least,
                               calm_config *config)
{
    int64_t n;
    /* A family without a table of token types allows 0. */
    CALM_TRY(calm_json_need_int(ctx, path, root, "type_vocab_size", &fallback, least, CALM_SIZE_LIMIT, &n));
    config->n_types = (size_t)n;
    return CALM_OK;
}

calm_status calm_bert_order(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    bool decoder;
    CALM_TRY(calm_config_switch(ctx, path, root, "is_decoder", false, &decoder));
    config->both_ways = !decoder;
    return CALM_OK;
}

calm_status calm_bert_padding(calm_ctx *ctx, const char *path, int64_t padding, calm_config *config)
{
    if (padding + 1 >= (int64_t)config->max_positions)
        return calm_fail(ctx, CALM_EFORMAT,
                         "%s: \"max_position_embeddings\": found %zu, expected more than \"pad_token_id\" %lld + 1, "
                         "since positions begin after it", path, config->max_positions, (long long)padding);
    /* The row before is the padding's. */
    config->position_base = (size_t)padding + 1;
    return CALM_OK;
}

void calm_bert_biases(calm_config *config)
{
    /* Roles that the family does not have are never queried. */
    for (calm_role role = 0; role < CALM_N_ROLES; role++)
        config->bias[role] = true;
}

calm_status calm_roberta_read(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    int64_t padding;
    CALM_TRY(calm_bert_types(ctx, path, root, 2, 1, config));
    CALM_TRY(calm_bert_order(ctx, path, root, config));
    CALM_TRY(calm_json_need_int(ctx, path, root, "pad_token_id", &(int64_t){1}, 0, CALM_SIZE_LIMIT, &padding));
    calm_bert_biases(config);
    config->head_activation = CALM_ACTIVATION_GELU;    /* independent of "hidden_act" */
    return calm_bert_padding(ctx, path, padding, config);
}
