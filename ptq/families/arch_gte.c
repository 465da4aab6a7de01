/* GTE (gte-base-en-v1.5, gte-multilingual-base): BERT with a rotary embedding instead of positions, q, k, v in one
 * matrix, and a gated MLP without a bias whose up and gate are in one matrix, up first.
 *
 *   x = attn_ln(x + o_proj(attn(qkv_proj(x))));  x = mlp_ln(x + down_proj(act(b) a)), [a | b] = up_gate_proj(x)
 *
 * Reference: arXiv 2407.19669; transformers' modeling_gte.py. */
#include "ptq/families/bert.h"

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    config->bias[CALM_ROLE_FUSED_QKV] = config->bias[CALM_ROLE_O] = config->bias[CALM_ROLE_DOWN] = true;
    config->head_activation = CALM_ACTIVATION_GELU;
    /* A model without token types has no table of them. */
    return calm_bert_types(ctx, path, root, 1, 0, config);
}

/* Names in checkpoints, after the prefix. */
static const calm_names names = {
    .blocks = "encoder.layer", .embed = "embeddings.word_embeddings", .head = "lm_head.decoder",
    .role = {[CALM_ROLE_FUSED_QKV] = "attention.qkv_proj", [CALM_ROLE_O] = "attention.o_proj",
             [CALM_ROLE_FUSED_GATE_UP] = "mlp.up_gate_proj", [CALM_ROLE_DOWN] = "mlp.down_proj"},
    CALM_NORMS(RESIDUAL, "attn_ln", "mlp_ln"),
    .up_first = true,
    .readers = &calm_names_llama,    /* separate linears instead of fused matrices */
    .engine = &calm_names_rotary_bert,
};

/* Modules before and after the blocks. */
static const calm_ends ends = {
    .types = "embeddings.token_type_embeddings", .norm = "embeddings.LayerNorm", .pooler = "pooler.dense",
    .transform = "lm_head.dense", .transform_norm = "lm_head.norm",
    .bias = "lm_head.decoder.bias",
};

/* `classes` includes those of the code that published files came with. */
const calm_arch calm_arch_gte = {
    .name = "gte",
    .classes = "GteForMaskedLM|NewModel|NewForMaskedLM|NewForSequenceClassification|NewForTokenClassification",
    .stem = "Gte",
    .prefixes = "gte.|new.|",
    .names = &names,
    CALM_BERT_ENCODER,
    .ends = &ends,
    .default_activation = "gelu",
    .default_positions = 8192,
    .default_rope_theta = 160000.0,
    .ntk_rope = true,
    .default_eps = 1e-12,
    .keys = "type_vocab_size logn_attention_clip1",
    .fixed = "position_embedding_type=rope pack_qkv=true logn_attention_scale=false layer_norm_type=layer_norm",
    .read_config = read_config,
};
