/* Granite mixtures: Granite's multipliers; the MLP of every block is a mixture of experts, stored in two tensors.
 *
 * Reference: Granite 3.0 language models (IBM, 2024); transformers' modeling_granitemoe.py. */
#include "ptq/arch/arch.h"

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    /* Every block is sparse, so intermediate_size is the width of an expert.  The softmax over the chosen logits equals
     * that over all, divided by the sum of the chosen. */
    const calm_moe_keys keys = {"num_local_experts", "num_experts_per_tok", "intermediate_size", true};
    CALM_TRY(calm_config_attention_biases(ctx, path, root, config));
    CALM_TRY(calm_config_mixture(ctx, path, root, &keys, config));
    return calm_config_multipliers(ctx, path, root, config);
}

/* vLLM 0.32 expects these names of experts that are stored one by one; it ignores weights of other names without a
 * message. */
static const calm_names names = {
    CALM_USUAL_ENDS,
    .role = {CALM_ATTENTION_ROLES("self_attn."), CALM_MLP_ROLES("block_sparse_moe.")},
    CALM_PRE_NORMS,
    .moe = {.router = "block_sparse_moe.router.layer", .experts = "block_sparse_moe.experts",
            .fused_gate_up = "block_sparse_moe.input_linear.weight",
            .fused_down = "block_sparse_moe.output_linear.weight"}};

const calm_arch calm_arch_granitemoe = {
    .name = "granitemoe",
    .classes = "GraniteMoeForCausalLM",
    .stem = "GraniteMoe",
    .names = &names,
    .default_rope_theta = 10000.0,
    .keys = "attention_bias embedding_multiplier attention_multiplier residual_multiplier logits_scaling "
            "num_local_experts num_experts_per_tok",
    .read_config = read_config,
};
