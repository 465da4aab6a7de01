/* DeepSeek-V2: V3's blocks with another router, a softmax whose weights are not divided by their sum.
 *
 * Reference: arXiv 2405.04434; transformers' modeling_deepseek_v2.py. */
#include <string.h>

#include "ptq/arch/arch.h"

/* Reads the mixture, whose router has one of two methods ("topk_method"). */
static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    static const calm_grouped_defaults defaults = {2, 0, 1, 1, 1};
    calm_moe_config *moe = &config->moe;
    const char *method;
    CALM_TRY(calm_json_need_string(ctx, path, root, "topk_method", "greedy", &method));
    if (strcmp(method, "greedy") != 0 && strcmp(method, "group_limited_greedy") != 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"topk_method\": found \"%s\", expected greedy or "
                         "group_limited_greedy", path, method);
    CALM_TRY(calm_config_deepseek_mixture(ctx, path, root, false, &defaults, config));
    moe->score = CALM_ROUTER_SOFTMAX;
    moe->choice_bias = false;
    moe->sum_plus = 0;
    moe->group_by_max = true;
    /* n_group only counts with the method "group_limited_greedy". */
    if (strcmp(method, "greedy") == 0)
        moe->n_groups = moe->top_groups = 1;
    CALM_TRY(calm_config_latent(ctx, path, root, config));
    /* Biases of the MLPs of the first blocks and of the shared expert; routed experts have none. */
    CALM_TRY(calm_config_mlp_biases(ctx, path, root, config));
    moe->shared_bias = config->bias[CALM_ROLE_DOWN];
    return CALM_OK;
}

const calm_arch calm_arch_deepseek_v2 = {
    .name = "deepseek_v2",
    .classes = "DeepseekV2ForCausalLM",
    .stem = "DeepseekV2",
    .names = &calm_names_latent,
    .latent = true,
    .varies = true,
    .neighbours = true,
    .default_positions = 2048,
    .default_rope_theta = 10000.0,
    .keys = CALM_LATENT_KEYS " mlp_bias",
    /* transformers ignores norm_topk_prob and does not divide by the sum; vLLM obeys it. */
    .fixed = "scoring_func=softmax norm_topk_prob=false rope_interleave=true",
    .aliases = "num_experts=n_routed_experts",
    .read_config = read_config,
};
