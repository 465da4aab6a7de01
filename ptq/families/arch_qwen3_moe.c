/* Qwen3-MoE: Qwen3's attention; the MLP of sparse blocks is a mixture of experts.
 *
 *   p = softmax(gate(h)), the top k of them (divided by their sum if norm_topk_prob)
 *   x += sum_e p_e down_e(silu(gate_e(h)) * up_e(h))
 *
 * Reference: arXiv 2505.09388; transformers' modeling_qwen3_moe.py. */
#include <string.h>

#include "ptq/families/qwen.h"

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    CALM_TRY(calm_config_attention_biases(ctx, path, root, config));
    const char *type = calm_json_string(calm_json_get(root, "model_type"), "");
    CALM_TRY(calm_config_experts(ctx, path, root, config));
    /* The text model of Qwen3-VL always divides by the sum, and its configuration has no key for that. */
    config->moe.norm_top_k |= strcmp(type, "qwen3_vl_moe_text") == 0;
    /* Unlike the dense class, this one ignores max_window_layers. */
    return calm_qwen_windows(ctx, path, root, calm_slides_always, config);
}

const calm_arch calm_arch_qwen3_moe = {
    .name = "qwen3_moe",
    .classes = "Qwen3MoeForCausalLM",
    .stem = "Qwen3Moe|Qwen3VLMoeText",
    .model_types = "qwen3_moe|qwen3_vl_moe_text",
    .names = &calm_names_qk_norm,
    .qk_norm = CALM_QK_NORM_HEAD,
    .default_kv_heads = 4,
    .default_positions = 32768,
    .mrope = true,
    .default_rope_theta = 10000.0,
    .keys = "attention_bias use_sliding_window sliding_window layer_types num_experts num_local_experts "
            "num_experts_per_tok moe_intermediate_size norm_topk_prob decoder_sparse_step mlp_only_layers",
    .read_config = read_config,
};
