/* MiniMax-M2: RMSNorm over the whole q and k, rotary embedding of a part of each head; the MLP of every block is a
 * mixture whose router's scores are sigmoids, with a bias for the choice.
 *
 * Reference: transformers' modeling_minimax_m2.py. */
#include "ptq/arch/arch.h"

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    const calm_moe_keys keys = {"num_local_experts", "num_experts_per_tok", "intermediate_size", true};
    CALM_TRY(calm_config_mixture(ctx, path, root, &keys, config));
    CALM_TRY(calm_config_rotary_width(ctx, path, root, "rotary_dim", config));
    /* Weights are the sigmoids divided by their sum. */
    config->moe.score = CALM_ROUTER_SIGMOID;
    config->moe.choice_bias = true;
    return CALM_OK;
}

static const calm_names names = {CALM_USUAL_ENDS, CALM_SPARSE_MODULES,
    CALM_PRE_NORMS,
    CALM_QK_NORMS("self_attn.q_norm", "self_attn.k_norm"),
    .parent = "block_sparse_moe", .engine_parent = "mlp", .parent_listed = true,
    .moe = {.router = "block_sparse_moe.gate", .experts = "block_sparse_moe.experts",
            .choice_bias = "block_sparse_moe.e_score_correction_bias"}};

const calm_arch calm_arch_minimax_m2 = {
    .name = "minimax_m2",
    .classes = "MiniMaxM2ForCausalLM",
    .stem = "MiniMaxM2",
    .names = &names,
    .qk_norm = CALM_QK_NORM_WHOLE,
    .default_kv_heads = 8,
    .default_head_dim = 128,
    .default_positions = 196608,
    .default_rope_theta = 5000000.0,
    .partial_rope = 1,
    .keys = "num_local_experts num_experts_per_tok rotary_dim num_mtp_modules mtp_transformer_layers",
    .fixed = "scoring_func=sigmoid qk_norm_type=per_layer use_qk_norm=true use_routing_bias=true",
    .aliases = "num_experts=num_local_experts",
    .read_config = read_config,
};
