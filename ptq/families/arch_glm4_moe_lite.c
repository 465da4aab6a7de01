/* GLM-4.7-Flash: DeepSeek-V3's blocks.
 *
 * Reference: transformers' modeling_glm4_moe_lite.py. */
#include "ptq/arch/arch.h"

/* DeepSeek's keys, with the usual defaults of GLM's mixtures. */
static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    static const calm_grouped_defaults defaults = {1, 1, 1.8, 1, 1};
    CALM_TRY(calm_config_deepseek_mixture(ctx, path, root, true, &defaults, config));
    CALM_TRY(calm_config_sparse_types(ctx, path, root, config));
    return calm_config_latent(ctx, path, root, config);
}

const calm_arch calm_arch_glm4_moe_lite = {
    .name = "glm4_moe_lite",
    .classes = "Glm4MoeLiteForCausalLM",
    .stem = "Glm4MoeLite",
    .names = &calm_names_latent,
    .latent = true,
    .varies = true,
    .neighbours = true,
    .default_positions = 202752,
    .default_rope_theta = 10000.0,
    .default_eps = 1e-5,
    .keys = CALM_LATENT_KEYS " mlp_layer_types",
    .fixed = "scoring_func=sigmoid topk_method=noaux_tc",
    .aliases = "num_local_experts=n_routed_experts",
    .read_config = read_config,
};
