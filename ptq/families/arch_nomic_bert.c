/* Nomic's BERT (nomic-embed-text): BERT with a rotary embedding instead of positions, q, k, v in one matrix, a gated
 * MLP, no biases.
 *
 *   x = norm1(x + out_proj(attn(Wqkv(x))));  x = norm2(x + fc2(fc11(x) silu(fc12(x))))
 *
 * Published files have GPT-2's keys, those that transformers writes have BERT's.
 * Reference: arXiv 2402.01613; transformers' modeling_nomic_bert.py. */
#include "ptq/families/bert.h"

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    double *theta = &config->rope[CALM_ROPE_GLOBAL].theta;
    CALM_TRY(calm_json_need_number(ctx, path, root, "rotary_emb_base", theta, 1, 1e12, theta));
    return calm_bert_types(ctx, path, root, 2, 0, config);
}

/* Names in checkpoints, after the prefix. */
static const calm_names names = {
    .blocks = "encoder.layers", .embed = "embeddings.word_embeddings", .head = "cls.predictions.decoder",
    .role = {[CALM_ROLE_FUSED_QKV] = "attn.Wqkv", [CALM_ROLE_O] = "attn.out_proj", [CALM_ROLE_GATE] = "mlp.fc12",
             [CALM_ROLE_UP] = "mlp.fc11", [CALM_ROLE_DOWN] = "mlp.fc2"},
    CALM_NORMS(RESIDUAL, "norm1", "norm2"),
    .readers = &calm_names_llama,    /* separate linears instead of fused matrices */
    .engine = &calm_names_rotary_bert,
};

/* Modules before and after the blocks. */
static const calm_ends ends = {
    .types = "embeddings.token_type_embeddings", .norm = "emb_ln", .pooler = "pooler.dense",
    CALM_BERT_HEAD("layer_norm"),
};

static const calm_size_keys published = {"n_embd", "n_inner", "n_layer", "n_head", "n_positions",
                                         "layer_norm_epsilon", "activation_function", NULL};

/* GPT-2's keys count where the file has them. */
const calm_arch calm_arch_nomic_bert = {
    .name = "nomic_bert",
    .classes = "NomicBertForMaskedLM|NomicBertForPreTraining",
    .stem = "NomicBert",
    .prefixes = "nomic_bert.|bert.|",
    .names = &names,
    CALM_BERT_ENCODER,
    .ends = &ends,
    .old_sizes = &published,
    .default_activation = "silu",
    .default_positions = 2048,
    .default_rope_theta = 1000.0,
    .default_eps = 1e-12,
    .keys = "type_vocab_size rotary_emb_base last_layer_subset parallel_block_tied_norm",
    /* Settings of the published code: only these values give the model above. */
    .fixed = "prenorm=false causal=false parallel_block=false use_rms_norm=false qkv_proj_bias=false "
             "mlp_fc1_bias=false mlp_fc2_bias=false rotary_emb_interleaved=false rotary_emb_fraction=1 "
             "scale_attn_by_inverse_layer_idx=false scale_attn_weights=true",
    .read_config = read_config,
};
