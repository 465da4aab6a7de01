/* OLMoE: RMSNorm over the whole q and k, after which q, k and v may be clamped; the MLP of every block is a mixture of
 * experts.
 *
 * Reference: arXiv 2409.02060; transformers' modeling_olmoe.py. */
#include "ptq/arch/arch.h"

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    /* Every block is sparse, so intermediate_size is the width of an expert; norm_topk_prob is false when absent. */
    const calm_moe_keys keys = {"num_experts", "num_experts_per_tok", "intermediate_size", false};
    double limit;
    CALM_TRY(calm_config_attention_biases(ctx, path, root, config));
    CALM_TRY(calm_json_need_number(ctx, path, root, "clip_qkv", &(double){0}, 1e-3, 1e6, &limit));
    config->qkv_limit = (float)limit;
    return calm_config_mixture(ctx, path, root, &keys, config);
}

const calm_arch calm_arch_olmoe = {
    .name = "olmoe",
    .classes = "OlmoeForCausalLM",
    .stem = "Olmoe",
    .names = &calm_names_qk_norm,
    .qk_norm = CALM_QK_NORM_WHOLE,
    .default_positions = 4096,
    .default_rope_theta = 10000.0,
    .default_eps = 1e-5,
    .keys = "attention_bias clip_qkv num_experts num_experts_per_tok norm_topk_prob",
    .aliases = "num_local_experts=num_experts",
    .read_config = read_config,
};
