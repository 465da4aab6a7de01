/* Qwen3 (dense): pre-norm RMSNorm, grouped-query attention with RMSNorm over each head of q and k before RoPE,
 * gated SiLU MLP, head tied or not.
 *
 *   x += o(attn(rope(norm(q(h))), rope(norm(k(h))), v(h))),  h = input_layernorm(x)
 *   x += down(silu(gate(h)) * up(h)),                        h = post_attention_layernorm(x)
 *
 * Reference: Qwen3 Technical Report, arXiv 2505.09388; transformers' modeling_qwen3.py. */
#include "ptq/families/qwen.h"

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    CALM_TRY(calm_config_attention_biases(ctx, path, root, config));
    return calm_qwen_windows(ctx, path, root, calm_qwen_slides, config);
}

const calm_arch calm_arch_qwen3 = {
    .name = "qwen3",
    .classes = "Qwen3ForCausalLM",
    .stem = "Qwen3|Qwen3VLText",
    .model_types = "qwen3|qwen3_vl_text",
    .names = &calm_names_qk_norm,
    .qk_norm = CALM_QK_NORM_HEAD,
    .default_kv_heads = 32,
    .default_head_dim = 128,
    .default_positions = 32768,
    .mrope = true,
    .default_rope_theta = 10000.0,
    .keys = "attention_bias use_sliding_window sliding_window layer_types",
    .read_config = read_config,
};
