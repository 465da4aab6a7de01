/* Llama 4: Llama's block with neighbouring rotary channels.  Rotated blocks attend within chunks, and normalise heads
 * of q and k after the rotation, without a weight; the other blocks see all tokens, and scale their queries by
 * position.  In some or all blocks the MLP is a mixture with a shared expert, whose weights multiply the experts'
 * inputs.
 *
 *   q, k = rms(rope(q)), rms(rope(k)), or without rope q *= 1 + attn_scale ln(1 + floor((p + 1) / floor_scale))
 *   w = sigmoid(r) of the largest logits r,  y = sum_e expert_e(w_e h) + shared(h)
 *
 * Reference: transformers' modeling_llama4.py. */
#include "ptq/arch/arch.h"

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    /* intermediate_size is the width of an expert; dense blocks have another key. */
    const calm_moe_keys keys = {"num_local_experts", "num_experts_per_tok", "intermediate_size", false};
    bool norm;
    CALM_TRY(calm_config_attention_biases(ctx, path, root, config));
    CALM_TRY(calm_config_no_rope(ctx, path, root, true, config));
    CALM_TRY(calm_config_chunks(ctx, path, root, 8192, config));
    CALM_TRY(calm_config_query_tuning(ctx, path, root, config));
    CALM_TRY(calm_config_switch(ctx, path, root, "use_qk_norm", true, &norm));
    config->qk_norm = norm ? CALM_QK_NORM_BARE : CALM_QK_NORM_NONE;
    CALM_TRY(calm_config_mixture(ctx, path, root, &keys, config));
    config->moe.norm_top_k = false;
    config->moe.shared_inner = config->moe.inner;
    config->moe.score = CALM_ROUTER_SIGMOID;
    config->moe.by_logit = config->moe.weighs_input = true;
    return calm_config_sparse_list(ctx, path, root, "moe_layers", "interleave_moe_layer_step", config);
}

static const calm_names names = {CALM_USUAL_ENDS,
    .role = {CALM_ATTENTION_ROLES("self_attn."), CALM_MLP_ROLES("feed_forward.")},
    CALM_PRE_NORMS,
    .moe = {.router = "feed_forward.router", .experts = "feed_forward.experts",
            .shared = "feed_forward.shared_expert", .fused_gate_up = "feed_forward.experts.gate_up_proj",
            .fused_down = "feed_forward.experts.down_proj"}};

static const calm_size_keys sizes = {CALM_USUAL_SIZES("intermediate_size_mlp")};

const calm_arch calm_arch_llama4 = {
    .name = "llama4",
    .classes = "Llama4ForCausalLM",
    .model_types = "llama4_text",
    .stem = "Llama4Text",
    .names = &names,
    .qk_norm = CALM_QK_NORM_BARE,
    .late_qk_norm = true,
    .neighbours = true,
    .sizes = &sizes,
    .default_kv_heads = 8,
    .default_head_dim = 128,
    .default_positions = 131072,
    .default_rope_theta = 500000.0,
    .default_eps = 1e-5,
    .keys = "attention_bias no_rope_layers no_rope_layer_interval layer_types attention_chunk_size use_qk_norm "
            "attn_temperature_tuning attn_scale floor_scale moe_layers interleave_moe_layer_step num_local_experts "
            "num_experts_per_tok",
    .read_config = read_config,
};
