/* DeepSeek-V3 and R1, Kimi-K2, Moonlight: latent attention; behind the first blocks the MLP is a mixture whose experts
 * are chosen by groups, with a bias, next to a shared expert.
 *
 * Reference: arXiv 2412.19437; transformers' modeling_deepseek_v3.py. */
#include "ptq/model/arch.h"

/* Keys of the published code with one value: transformers has no choice there. */
static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    static const calm_fixed_key fixed[] = {{"scoring_func", "sigmoid"}, {"topk_method", "noaux_tc"}};
    int64_t groups;
    CALM_TRY(calm_config_fixed(ctx, path, root, fixed, 2));
    /* Absent, they would be the largest model's in transformers. */
    CALM_TRY(calm_json_need_int(ctx, path, root, "n_group", NULL, 1, CALM_ROUTER_GROUPS, &groups));
    CALM_TRY(calm_json_need_int(ctx, path, root, "topk_group", NULL, 1, groups, &groups));
    CALM_TRY(calm_config_deepseek_mixture(ctx, path, root, config));
    return calm_config_latent(ctx, path, root, config);
}

const calm_names calm_names_latent = {CALM_USUAL_ENDS,
    .role = {CALM_LATENT_ROLES, [CALM_ROLE_GATE] = "mlp.gate_proj", [CALM_ROLE_UP] = "mlp.up_proj",
             [CALM_ROLE_DOWN] = "mlp.down_proj"},
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
    .read_config = read_config,
};
