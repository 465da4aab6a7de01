/* MPNet: BERT without token types; positions begin after the row of the padding token, and scores of all blocks get a
 * relative position bias (distance.h).
 *
 * Reference: arXiv 2004.09297; transformers' modeling_mpnet.py. */
#include "ptq/families/bert.h"

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    /* The table may have more rows than buckets. */
    int64_t n;
    CALM_TRY(calm_json_need_int(ctx, path, root, "relative_attention_num_buckets",
                                &(int64_t){CALM_DISTANCE_BUCKETS}, CALM_DISTANCE_BUCKETS, CALM_SIZE_LIMIT, &n));
    config->n_distances = (size_t)n;
    calm_bert_biases(config);
    config->head_activation = CALM_ACTIVATION_GELU;
    /* The code has this padding id, and ignores "pad_token_id". */
    return calm_bert_padding(ctx, path, 1, config);
}

/* Names in checkpoints, after the prefix. */
static const calm_names names = {
    .blocks = "encoder.layer",
    .embed = "embeddings.word_embeddings",
    .head = "lm_head.decoder",
    .role = {[CALM_ROLE_Q] = "attention.attn.q", [CALM_ROLE_K] = "attention.attn.k", [CALM_ROLE_V] = "attention.attn.v",
             [CALM_ROLE_O] = "attention.attn.o", [CALM_ROLE_UP] = "intermediate.dense",
             [CALM_ROLE_DOWN] = "output.dense"},
    CALM_NORMS(RESIDUAL, "attention.LayerNorm", "output.LayerNorm"),
    .distance = "encoder.relative_attention_bias",
};

/* Modules before and after the blocks. */
static const calm_ends ends = {
    .positions = "embeddings.position_embeddings",
    .norm = "embeddings.LayerNorm",
    .pooler = "pooler.dense",
    CALM_ROBERTA_HEAD,
};

/* config.json has no key for token types. */
const calm_arch calm_arch_mpnet = {
    .name = "mpnet",
    .classes = "MPNetForMaskedLM",
    .stem = "MPNet",
    .prefixes = "mpnet.|",
    .names = &names,
    CALM_BERT_DEFAULTS,
    .ends = &ends,
    .keys = "relative_attention_num_buckets",
    .read_config = read_config,
};
