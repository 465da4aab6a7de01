/* Granite 4: Granite's multipliers; blocks of Mamba-2 (kind_mamba.c) and some of attention, mostly without rotary
 * embedding; an MLP, in larger models in addition to experts, which are stored in two tensors.
 *
 * Reference: transformers' modeling_granitemoehybrid.py. */
#include "ptq/families/mixers.h"

static const calm_mamba_keys mamba = {
    .heads = "mamba_n_heads", .head_dim = "mamba_d_head", .groups = "mamba_n_groups", .state = "mamba_d_state",
    .taps = "mamba_d_conv", .conv_bias = "mamba_conv_bias", .bias = "mamba_proj_bias", .expand = "mamba_expand",
    .usual_groups = 1, .usual_state = 256};

/* The MLP is the shared expert; its width is not that of an expert. */
static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    const calm_moe_keys experts = {"num_local_experts", "num_experts_per_tok", "intermediate_size", true};
    CALM_TRY(calm_config_attention_biases(ctx, path, root, config));
    CALM_TRY(calm_config_size(ctx, path, root, "shared_intermediate_size", &(int64_t){1024}, &config->inner));
    CALM_TRY(calm_config_experts_beside(ctx, path, root, NULL, &experts, config));
    CALM_TRY(calm_config_position_type(ctx, path, root, config));
    CALM_TRY(calm_config_multipliers(ctx, path, root, config));
    CALM_TRY(calm_config_mamba_sizes(ctx, path, root, &mamba, config));
    return calm_config_mamba(ctx, path, root, config);
}

/* vLLM's names of experts that are stored one by one. */
static const char *const words[CALM_N_ROLES] = {[CALM_ROLE_GATE] = "gate_proj", [CALM_ROLE_UP] = "up_proj",
                                                [CALM_ROLE_DOWN] = "down_proj"};

static const calm_names names = {
    CALM_USUAL_ENDS,
    .parent = "mamba", .engine_parent = "mixer",
    .role = {CALM_ATTENTION_ROLES("self_attn."), CALM_MAMBA_ROLES("mamba."),
             [CALM_ROLE_FUSED_GATE_UP] = "shared_mlp.input_linear", [CALM_ROLE_DOWN] = "shared_mlp.output_linear"},
    CALM_PRE_NORMS,
    .plain = {CALM_MAMBA_PLAINS("mamba.")},
    .moe = {.router = "block_sparse_moe.router.layer", .experts = "block_sparse_moe.experts", .words = words,
            .shared = "shared_mlp", .fused_gate_up = "block_sparse_moe.input_linear.weight",
            .fused_down = "block_sparse_moe.output_linear.weight"}};

const calm_arch calm_arch_granitemoehybrid = {
    .name = "granitemoehybrid",
    .classes = "GraniteMoeHybridForCausalLM",
    .stem = "GraniteMoeHybrid",
    .varies = true,
    .names = &names,
    .default_rope_theta = 10000.0,
    .keys = "attention_bias embedding_multiplier attention_multiplier residual_multiplier logits_scaling "
            "num_local_experts num_experts_per_tok shared_intermediate_size position_embedding_type layer_types "
            "mamba_n_heads mamba_d_head mamba_n_groups mamba_d_state mamba_d_conv mamba_expand mamba_chunk_size "
            "mamba_conv_bias mamba_proj_bias time_step_limit",
    .fixed = "normalization_function=rmsnorm",
    .aliases = "layers_block_type=layer_types",
    .read_config = read_config,
};
