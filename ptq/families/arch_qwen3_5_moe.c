/* Qwen3.5 and Qwen3.6 with mixtures of experts: Qwen3.5's mixers; the MLP of every block is a mixture, whose weights
 * are divided by their sum, with a gated shared expert.
 *
 * Reference: transformers' modeling_qwen3_5_moe.py. */
#include "ptq/families/qwen.h"

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    const calm_moe_keys keys = {"num_experts", "num_experts_per_tok", "moe_intermediate_size", true};
    CALM_TRY(calm_config_mixture(ctx, path, root, &keys, config));
    CALM_TRY(calm_config_size(ctx, path, root, "shared_expert_intermediate_size", NULL, &config->moe.shared_inner));
    return calm_config_delta(ctx, path, root, config);
}

/* No block has a dense MLP, and config.json has no width for one. */
const calm_arch calm_arch_qwen3_5_moe = {
    .name = "qwen3_5_moe",
    .classes = "Qwen3_5MoeForCausalLM",
    .stem = "Qwen3_5Moe|Qwen3_5MoeText",
    .model_types = "qwen3_5_moe_text",
    CALM_QWEN_HYBRID,
    .default_kv_heads = 2,
    .sizes = CALM_SIZES("moe_intermediate_size", .activation = "hidden_act"),
    .names = &calm_names_qwen3_5,
    .keys = CALM_DELTA_KEYS " num_experts num_experts_per_tok moe_intermediate_size shared_expert_intermediate_size",
    .read_config = read_config,
};
