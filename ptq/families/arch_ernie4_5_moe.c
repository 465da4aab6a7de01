/* ERNIE 4.5 mixtures: Llama's block with a rotary embedding of neighbouring channels; after the first blocks the MLP is
 * a mixture with shared experts, whose router chooses with a bias.
 *
 * Reference: ERNIE 4.5 technical report; transformers' modeling_ernie4_5_moe.py. */
#include "ptq/arch/arch.h"

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    const calm_moe_keys keys = {"moe_num_experts", "moe_k", "moe_intermediate_size", true};
    int64_t shared;
    double least;
    CALM_TRY(calm_config_mixture(ctx, path, root, &keys, config));
    CALM_TRY(calm_json_need_int(ctx, path, root, "moe_num_shared_experts", &(int64_t){2}, 0, 1 << 10, &shared));
    CALM_TRY(calm_json_need_number(ctx, path, root, "moe_norm_min", &(double){1e-12}, 0, 1, &least));
    /* Several shared experts are stored as one, of the sum of their widths. */
    config->moe.shared_inner = (size_t)shared * config->moe.inner;
    config->moe.choice_bias = true;
    /* The divisor of weights is at least this. */
    config->moe.sum_min = (float)least;
    /* "use_bias" sets the biases of the head and of all linears except those of routed experts. */
    CALM_TRY(calm_config_use_bias(ctx, path, root, false, config));
    config->moe.shared_bias = config->bias[CALM_ROLE_DOWN];
    config->head_bias = config->moe.shared_bias && config->arch->names->head;
    return calm_config_sparse_range(ctx, path, root, config);
}

static const calm_names names = {CALM_USUAL_MODULES,
    CALM_PRE_NORMS,
    .moe = {.router = "mlp.gate", .experts = "mlp.experts", .shared = "mlp.shared_experts",
            .choice_bias = "mlp.moe_statics.e_score_correction_bias"}};

const calm_arch calm_arch_ernie4_5_moe = {
    .name = "ernie4_5_moe",
    .classes = "Ernie4_5_MoeForCausalLM",
    .stem = "Ernie4_5_Moe",
    .names = &names,
    .default_tied = true,
    .default_kv_heads = 4,
    .default_positions = 131072,
    .default_rope_theta = 500000.0,
    .neighbours = true,
    .default_eps = 1e-5,
    .keys = "moe_num_experts moe_k moe_intermediate_size moe_num_shared_experts moe_layer_start_index "
            "use_bias moe_layer_end_index moe_layer_interval moe_norm_min num_nextn_predict_layers",
    .aliases = "num_experts=moe_num_experts num_experts_per_tok=moe_k",
    .read_config = read_config,
};
