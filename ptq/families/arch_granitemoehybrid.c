/* Granite 4: Granite's multipliers; blocks of Mamba-2 (kind_mamba.c) and some of attention, mostly without rotary
 * embedding; an MLP, in larger models in addition to experts, which are stored in two tensors.
 *
 * Reference: transformers' modeling_granitemoehybrid.py. */
#include <string.h>

#include "ptq/base/scope.h"
#include "ptq/families/mixers.h"

/* "rope" rotates all blocks with attention, null and "nope" none. */
static calm_status read_positions(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    const char *type;
    CALM_TRY(calm_json_need_string(ctx, path, root, "position_embedding_type", "nope", &type));
    if (strcmp(type, "rope") == 0)
        return CALM_OK;
    if (strcmp(type, "nope") != 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"position_embedding_type\": expected null, \"nope\" or "
                         "\"rope\", found \"%s\"", path, type);
    CALM_TRY(calm_config_new_no_rope(ctx, config));
    memset(config->no_rope, true, config->n_blocks * sizeof *config->no_rope);
    return CALM_OK;
}

/* Reads Mamba-2's sizes: the heads together must have the expanded width. */
static calm_status read_mamba(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    calm_mamba_keys keys = {"mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv",
                            "mamba_conv_bias", "mamba_proj_bias", 0, 1, 256};
    const calm_json *head = calm_json_get(root, keys.head_dim);
    const calm_mamba_shape *shape = &config->mamba.shape;
    size_t expand, heads;
    CALM_TRY(calm_config_size(ctx, path, root, "mamba_expand", &(int64_t){2}, &expand));
    CALM_TRY(calm_config_size(ctx, path, root, keys.heads, &(int64_t){128}, &heads));
    if (expand * config->hidden % heads != 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"%s\": expected a divisor of mamba_expand hidden_size (%zu), found "
                         "%zu", path, keys.heads, expand * config->hidden, heads);
    keys.usual_head_dim = (int64_t)(expand * config->hidden / heads);
    /* "auto" is read like an absent key. */
    if (strcmp(calm_json_string(head, ""), "auto") == 0)
        keys.head_dim = "";
    CALM_TRY(calm_config_mamba_sizes(ctx, path, root, &keys, config));
    if (shape->head_dim != (size_t)keys.usual_head_dim)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"mamba_d_head\": expected mamba_expand hidden_size / mamba_n_heads "
                         "(%lld), found %zu", path, (long long)keys.usual_head_dim, shape->head_dim);
    config->mamba.activation = config->activation;
    CALM_TRY(calm_config_step_limits(ctx, path, root, config));
    return calm_config_mamba(ctx, path, root, config);
}

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    /* Published files have the key; transformers implements one value. */
    static const calm_fixed_key fixed[] = {{"normalization_function", "rmsnorm"}};
    const calm_moe_keys experts = {"num_local_experts", "num_experts_per_tok", "intermediate_size", true};
    CALM_TRY(calm_config_fixed(ctx, path, root, fixed, 1));
    CALM_TRY(calm_config_attention_biases(ctx, path, root, config));
    CALM_TRY(calm_config_size(ctx, path, root, "shared_intermediate_size", &(int64_t){1024}, &config->inner));
    CALM_TRY(calm_config_experts_beside(ctx, path, root, NULL, &experts, config));
    CALM_TRY(read_positions(ctx, path, root, config));
    CALM_TRY(calm_config_multipliers(ctx, path, root, config));
    return read_mamba(ctx, path, root, config);
}

/* vLLM's names of experts that are stored one by one. */
static const char *const words[CALM_N_ROLES] = {[CALM_ROLE_GATE] = "gate_proj", [CALM_ROLE_UP] = "up_proj",
                                                [CALM_ROLE_DOWN] = "down_proj"};

static const calm_names names = {
    CALM_USUAL_ENDS,
    .parent = "mamba", .engine_parent = "mixer",
    .role = {[CALM_ROLE_Q] = "self_attn.q_proj", [CALM_ROLE_K] = "self_attn.k_proj",
             [CALM_ROLE_V] = "self_attn.v_proj", [CALM_ROLE_O] = "self_attn.o_proj", CALM_MAMBA_ROLES("mamba."),
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
            "mamba_conv_bias mamba_proj_bias time_step_limit normalization_function",
    .aliases = "layers_block_type=layer_types",
    .read_config = read_config,
};
