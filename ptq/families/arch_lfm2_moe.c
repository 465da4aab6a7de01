/* LFM2 with mixtures of experts: after the first blocks the MLP is a mixture whose router's scores are sigmoids, with a
 * bias for the choice; weights are divided by their sum.
 *
 * Reference: transformers' modeling_lfm2_moe.py. */
#include "ptq/families/mixers.h"

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    const calm_moe_keys keys = {"num_experts", "num_experts_per_tok", "moe_intermediate_size", true};
    calm_moe_config *moe = &config->moe;
    int64_t dense;
    double scale;
    CALM_TRY(calm_config_mixture(ctx, path, root, &keys, config));
    CALM_TRY(calm_json_need_int(ctx, path, root, "num_dense_layers", &(int64_t){2}, 0, 1 << 20, &dense));
    CALM_TRY(calm_json_need_number(ctx, path, root, "routed_scaling_factor", &(double){1}, 1e-6, 1e6, &scale));
    CALM_TRY(calm_config_switch(ctx, path, root, "use_expert_bias", true, &moe->choice_bias));
    moe->score = CALM_ROUTER_SIGMOID;
    moe->sum_plus = 1e-6f;
    moe->scale = (float)scale;
    for (size_t i = 0; i < config->n_blocks; i++)
        moe->sparse[i] = (int64_t)i >= dense;
    /* The class has no default for "layer_types". */
    return calm_config_conv(ctx, path, root, NULL, config);
}

static const calm_names names = {CALM_LFM2_MODULES,
    .moe = {.router = "feed_forward.gate", .experts = "feed_forward.experts",
            .choice_bias = "feed_forward.expert_bias"}};

const calm_arch calm_arch_lfm2_moe = {
    .name = "lfm2_moe",
    .classes = "Lfm2MoeForCausalLM",
    .stem = "Lfm2Moe",
    CALM_LFM2_DEFAULTS,
    .names = &names,
    .keys = CALM_CONV_KEYS " num_experts num_experts_per_tok moe_intermediate_size norm_topk_prob num_dense_layers "
            "routed_scaling_factor use_expert_bias",
    .read_config = read_config,
};
