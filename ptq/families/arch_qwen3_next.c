/* Qwen3-Next: the mixers of Qwen3.5, whose q, k, v and z are one matrix (kind_delta.c), and Qwen2-MoE's mixture.
 *
 * Reference: transformers' modeling_qwen3_next.py. */
#include "ptq/families/qwen.h"

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    CALM_TRY(calm_config_experts(ctx, path, root, config));
    /* norm_topk_prob is true when absent, unlike in related families. */
    CALM_TRY(calm_config_switch(ctx, path, root, "norm_topk_prob", true, &config->moe.norm_top_k));
    CALM_TRY(calm_config_size(ctx, path, root, "shared_expert_intermediate_size", NULL, &config->moe.shared_inner));
    return calm_config_delta(ctx, path, root, config);
}

static const calm_names names = {
    CALM_USUAL_ENDS, CALM_QWEN_MIXERS,
    .role = {CALM_QWEN_ROLES, [CALM_ROLE_DELTA_QKVZ] = "linear_attn.in_proj_qkvz",
             [CALM_ROLE_DELTA_BA] = "linear_attn.in_proj_ba"}};

const calm_arch calm_arch_qwen3_next = {
    .name = "qwen3_next",
    .classes = "Qwen3NextForCausalLM",
    .stem = "Qwen3Next",
    CALM_QWEN_HYBRID,
    .default_kv_heads = 2,
    .names = &names,
    .keys = CALM_DELTA_KEYS " num_experts num_local_experts num_experts_per_tok moe_intermediate_size "
            "shared_expert_intermediate_size norm_topk_prob decoder_sparse_step mlp_only_layers",
    .read_config = read_config,
};
