/* Qwen1.5-MoE and Qwen2-MoE: Qwen2's attention; the MLP of sparse blocks is a mixture of experts with a gated shared
 * expert.
 *
 *   x += sum_e p_e down_e(silu(gate_e(h)) * up_e(h)) + sigmoid(shared_expert_gate(h)) shared_expert(h)
 *
 * Reference: arXiv 2407.10671; transformers' modeling_qwen2_moe.py. */
#include "ptq/families/qwen.h"

static bool slides(size_t block, int64_t max_window_layers)
{
    return (block + 1) % 2 != 0 && (int64_t)block < max_window_layers;
}

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    bool bias;
    /* The biases have a switch in this class, on by default; the dense class always has them. */
    CALM_TRY(calm_config_switch(ctx, path, root, "qkv_bias", true, &bias));
    config->bias[CALM_ROLE_Q] = config->bias[CALM_ROLE_K] = config->bias[CALM_ROLE_V] = bias;
    CALM_TRY(calm_config_experts(ctx, path, root, config));
    CALM_TRY(calm_config_size(ctx, path, root, "shared_expert_intermediate_size", NULL, &config->moe.shared_inner));
    return calm_qwen_windows(ctx, path, root, slides, config);
}

const calm_arch calm_arch_qwen2_moe = {
    .name = "qwen2_moe",
    .classes = "Qwen2MoeForCausalLM",
    .stem = "Qwen2Moe",
    .names = &calm_names_llama,
    .default_kv_heads = 16,
    .default_positions = 32768,
    .default_rope_theta = 10000.0,
    .keys = "qkv_bias use_sliding_window sliding_window layer_types num_experts num_local_experts num_experts_per_tok "
            "moe_intermediate_size shared_expert_intermediate_size norm_topk_prob decoder_sparse_step mlp_only_layers",
    .read_config = read_config,
};
