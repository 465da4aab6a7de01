/* ModernBERT: pre-norm LayerNorm, rotary embedding, q, k, v in one matrix, a gated MLP whose gate and input are in one
 * matrix, biases by switches; sliding blocks see half a window on either side and have a second rotary embedding.
 *
 *   x = norm(embedding);  x += Wo(attn(Wqkv(h))), h = attn_norm(x), of block 0 x itself
 *   x += Wo(gelu(a) b),   [a | b] = Wi(mlp_norm(x))
 *
 * Reference: arXiv 2412.13663; transformers' modeling_modernbert.py. */
#include "ptq/families/bert.h"

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    int64_t width;
    CALM_TRY(calm_config_activation(ctx, path, root, "classifier_activation", "gelu", &config->head_activation));
    CALM_TRY(calm_config_other_theta(ctx, path, root, config));
    CALM_TRY(calm_config_attention_biases(ctx, path, root, config));
    CALM_TRY(calm_config_mlp_biases(ctx, path, root, config));
    CALM_TRY(calm_json_need_bool(ctx, path, root, "norm_bias", &(bool){false}, &config->norm_bias));
    CALM_TRY(calm_config_head_bias(ctx, path, root, "decoder_bias", true, config));
    CALM_TRY(calm_json_need_int(ctx, path, root, "local_attention", &(int64_t){128}, 1, 1 << 30, &width));
    CALM_TRY(calm_config_windows_by(ctx, path, root, width, "global_attn_every_n_layers", 3, calm_slides_after_first,
                                    config));
    calm_config_windows_both_ways(config);
    return CALM_OK;
}

/* Names in checkpoints, after the prefix. */
static const calm_names names = {
    .blocks = "layers", .embed = "embeddings.tok_embeddings", .final_norm = "final_norm", .head = "decoder",
    .role = {[CALM_ROLE_FUSED_QKV] = "attn.Wqkv", [CALM_ROLE_O] = "attn.Wo", [CALM_ROLE_FUSED_GATE_UP] = "mlp.Wi",
             [CALM_ROLE_DOWN] = "mlp.Wo"},
    CALM_NORMS(IN, "attn_norm", "mlp_norm"),
    .bare_start = true,
};

/* Modules before and after the blocks. */
static const calm_ends ends = {.norm = "embeddings.norm", .transform = "head.dense", .transform_norm = "head.norm"};

/* Each rotary embedding has its own key. */
const calm_arch calm_arch_modernbert = {
    .name = "modernbert",
    .classes = "ModernBertForMaskedLM",
    .stem = "ModernBert",
    .prefixes = "model.|",
    .names = &names,
    CALM_BERT_ENCODER,
    .ends = &ends,
    .sizes = CALM_SIZES("intermediate_size", .eps = "norm_eps", .activation = "hidden_activation"),
    .default_activation = "gelu",
    .default_positions = 8192,
    .default_rope_theta = 160000.0,
    .theta_key = "global_rope_theta",
    .local_theta_key = "local_rope_theta",
    .default_local_theta = 10000.0,
    .scales_both = true,
    .default_eps = 1e-5,
    .keys = "attention_bias mlp_bias norm_bias decoder_bias layer_types local_attention global_attn_every_n_layers "
            "classifier_activation",
    .fixed = "position_embedding_type=absolute",    /* in the first files; nothing reads it */
    .read_config = read_config,
};
