/* Phi-3.5-MoE: Llama's block with LayerNorm, biases in attention and head; the MLP of every block is a mixture whose
 * router is sparsemixer (router.h).
 *
 * Reference: arXiv 2404.14219, 2409.12136; transformers' modeling_phimoe.py. */
#include "ptq/arch/arch.h"

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    /* Every block is sparse, so intermediate_size is the width of an expert. */
    const calm_moe_keys keys = {"num_local_experts", "num_experts_per_tok", "intermediate_size", false};
    double jitter;
    CALM_TRY(calm_config_attention_biases(ctx, path, root, config));
    CALM_TRY(calm_config_mixture(ctx, path, root, &keys, config));
    /* Each of the router's two rounds chooses one expert, independent of num_experts_per_tok. */
    config->moe.top_k = config->moe.n_experts < 2 ? 1 : 2;
    CALM_TRY(calm_json_need_number(ctx, path, root, "router_jitter_noise", &(double){0.01}, 0, 1e3, &jitter));
    CALM_TRY(calm_config_head_bias(ctx, path, root, "lm_head_bias", false, config));
    /* Each round has its own sum; the weights of both are not divided by a sum. */
    config->moe.score = CALM_ROUTER_SPARSEMIXER;
    config->moe.norm_top_k = false;
    config->moe.jitter = (float)jitter;
    CALM_TRY(calm_config_rope_scales(ctx, path, root, config));
    return calm_config_windows(ctx, path, root, 0, calm_slides_always, 0, config);
}

static const calm_names names = {CALM_USUAL_ENDS, CALM_SPARSE_MODULES,
    CALM_PRE_NORMS,
    .moe = {.router = "block_sparse_moe.gate", .experts = "block_sparse_moe.experts"}};

const calm_arch calm_arch_phimoe = {
    .name = "phimoe",
    .classes = "PhimoeForCausalLM|PhiMoEForCausalLM",
    .stem = "Phimoe",
    .names = &names,
    .norm = CALM_NORM_LAYER,
    .eps_key = "rms_norm_eps",
    .default_kv_heads = 8,
    .default_positions = 131072,
    .default_rope_theta = 1000000.0,
    .default_eps = 1e-5,
    .rope_keys = "short_mscale long_mscale",
    .keys = "attention_bias sliding_window num_local_experts num_experts_per_tok lm_head_bias input_jitter_noise "
            "router_jitter_noise",
    .read_config = read_config,
};
