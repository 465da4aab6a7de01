/* DeepSeek-V3 and R1, Kimi-K2, Moonlight: latent attention; after the first blocks the MLP is a mixture with a shared
 * expert, whose experts are chosen by groups, with a bias.
 *
 * Reference: arXiv 2412.19437; transformers' modeling_deepseek_v3.py. */
#include "ptq/arch/arch.h"

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    static const calm_grouped_defaults defaults = {1, 3, 2.5, 8, 4};
    CALM_TRY(calm_config_deepseek_mixture(ctx, path, root, true, &defaults, config));
    return calm_config_latent(ctx, path, root, config);
}

const calm_names calm_names_latent = {CALM_USUAL_ENDS,
    .role = {CALM_LATENT_ROLES, CALM_MLP_ROLES("mlp.")},
    .plain = CALM_LATENT_NORMS,
    CALM_PRE_NORMS,
    .moe = CALM_GROUPED_MODULES};

const calm_arch calm_arch_deepseek_v3 = {
    .name = "deepseek_v3",
    .classes = "DeepseekV3ForCausalLM",
    .model_types = "deepseek_v3|kimi_k2",
    .stem = "DeepseekV3",
    .names = &calm_names_latent,
    .latent = true,
    .varies = true,
    .neighbours = true,
    .default_positions = 4096,
    .default_rope_theta = 10000.0,
    .keys = CALM_LATENT_KEYS,
    .fixed = "scoring_func=sigmoid topk_method=noaux_tc",
    .aliases = "num_local_experts=n_routed_experts num_mtp_layers=num_nextn_predict_layers",
    .read_config = read_config,
};
