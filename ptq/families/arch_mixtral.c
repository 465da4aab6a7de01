/* Mixtral: Mistral's block; the MLP of every block is a mixture of experts, each w2(silu(w1(h)) * w3(h)).
 *
 * Reference: arXiv 2401.04088; transformers' modeling_mixtral.py. */
#include "ptq/arch/arch.h"

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    /* Every block is sparse, so intermediate_size is the width of an expert. */
    const calm_moe_keys keys = {"num_local_experts", "num_experts_per_tok", "intermediate_size", true};
    CALM_TRY(calm_config_mixture(ctx, path, root, &keys, config));
    /* When absent there is no window, unlike Mistral. */
    return calm_config_windows(ctx, path, root, 0, calm_slides_always, 0, config);
}

static const calm_names names = {CALM_USUAL_ENDS, CALM_SPARSE_MODULES,
    CALM_PRE_NORMS,
    .moe = {.router = "block_sparse_moe.gate", .experts = "block_sparse_moe.experts"}};

const calm_arch calm_arch_mixtral = {
    .name = "mixtral",
    .classes = "MixtralForCausalLM",
    .stem = "Mixtral",
    .names = &names,
    .default_kv_heads = 8,
    .default_positions = 131072,
    .default_rope_theta = 1000000.0,
    .default_eps = 1e-5,
    .keys = "sliding_window num_local_experts num_experts_per_tok",
    .aliases = "num_experts=num_local_experts",
    .read_config = read_config,
};
