/* Nemotron-H, Nemotron-Nano 2 and 3: blocks of one sublayer, x += f(norm(x)), which is Mamba-2 (kind_mamba.c),
 * attention without rotary embedding, an MLP down(relu(up(h))^2), or a mixture of such MLPs with DeepSeek's router,
 * with moe_latent_size in a latent space.
 *
 * References: arXiv 2504.03624; transformers' modeling_nemotron_h.py. */
#include <math.h>

#include "ptq/families/mixers.h"

/* Reads the experts of a model with such blocks. */
static calm_status read_experts(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    const calm_moe_keys keys = {"n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", true};
    CALM_TRY(calm_config_mixture(ctx, path, root, &keys, config));
    CALM_TRY(calm_config_grouped(ctx, path, root, &(calm_grouped_defaults){1, 1, 1, 1, 1}, config));
    if (calm_json_typeof(calm_json_get(root, "moe_latent_size")) != CALM_JSON_NULL)
        CALM_TRY(calm_config_size(ctx, path, root, "moe_latent_size", NULL, &config->moe.latent));
    /* Biases of the shared expert, which is one of a separate width even if "n_shared_experts" says otherwise; routed
     * experts have none. */
    CALM_TRY(calm_json_need_bool(ctx, path, root, "mlp_bias", &(bool){false}, &config->moe.shared_bias));
    if (config->moe.shared_bias && config->moe.latent)    /* biases of the linears B and C are not implemented */
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"mlp_bias\": found true, expected false with "
                         "\"moe_latent_size\"", path);
    return calm_config_size(ctx, path, root, "moe_shared_expert_intermediate_size", NULL, &config->moe.shared_inner);
}

/* Reads Mamba-2's sizes; the code clamps steps from below and ignores "time_step_limit". */
static calm_status read_mamba(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    const calm_mamba_keys keys = {"mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel",
                                  "use_conv_bias", "use_bias", 64, 8, 128};
    double least;
    CALM_TRY(calm_config_mamba_sizes(ctx, path, root, &keys, config));
    CALM_TRY(calm_json_need_number(ctx, path, root, "time_step_min", &(double){0.001}, 0, 1e6, &least));
    config->mamba.limits = (calm_mamba_limits){(float)least, INFINITY};
    return calm_config_activation(ctx, path, root, "mamba_hidden_act", "silu", &config->mamba.activation);
}

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    static const calm_fixed_key fixed[] = {{"attention_bias", "false"}, {"sliding_window", "null"}};
    bool any = false;
    CALM_TRY(calm_config_fixed(ctx, path, root, fixed, sizeof fixed / sizeof *fixed));
    CALM_TRY(calm_config_mlp_biases(ctx, path, root, config));
    CALM_TRY(read_mamba(ctx, path, root, config));
    CALM_TRY(calm_config_single(ctx, path, root, config));
    for (size_t i = 0; i < config->n_blocks; i++)
        any |= config->moe.sparse[i];
    if (any)
        CALM_TRY(read_experts(ctx, path, root, config));
    /* calm_config_mixture has made every block sparse; this reads the actual list. */
    return calm_config_single(ctx, path, root, config);
}

static const calm_size_keys sizes = {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                                     "max_position_embeddings", "layer_norm_epsilon", "mlp_hidden_act", NULL};

/* Checkpoints use the prefix "backbone." where transformers uses "model.". */
static const calm_names names = {
    .blocks = "layers", .embed = "embeddings", .final_norm = "norm_f", .head = "lm_head",
    .role = {[CALM_ROLE_Q] = "mixer.q_proj", [CALM_ROLE_K] = "mixer.k_proj", [CALM_ROLE_V] = "mixer.v_proj",
             [CALM_ROLE_O] = "mixer.o_proj", CALM_MAMBA_ROLES("mixer."), [CALM_ROLE_UP] = "mixer.up_proj",
             [CALM_ROLE_DOWN] = "mixer.down_proj"},
    .norm = {[CALM_SUBLAYER_ATTENTION] = {[CALM_NORM_IN] = "norm"}, [CALM_SUBLAYER_MLP] = {[CALM_NORM_IN] = "norm"}},
    .readers = &names,
    .plain = {CALM_MAMBA_PLAINS("mixer."), [CALM_PLAIN_EXPERTS_IN] = "mixer.fc1_latent_proj.weight",
              [CALM_PLAIN_EXPERTS_OUT] = "mixer.fc2_latent_proj.weight"},
    .moe = {.router = "mixer.gate", .experts = "mixer.experts", .shared = "mixer.shared_experts",
            .choice_bias = "mixer.gate.e_score_correction_bias"}};

const calm_arch calm_arch_nemotron_h = {
    .name = "nemotron_h",
    .classes = "NemotronHForCausalLM",
    .stem = "NemotronH",
    .prefixes = "backbone.|model.|",
    .varies = true,
    .names = &names,
    .sizes = &sizes,
    .block_list = CALM_SINGLE_LIST,
    .block_word = CALM_SINGLE_WORD,
    .default_kv_heads = 8,
    .default_head_dim = 128,
    .default_positions = 4096,
    .default_activation = "relu2",
    .default_eps = 1e-5,
    /* Files also have keys that transformers does not read: a rotary embedding, limits of steps, an expanded width,
     * another epsilon, how many logits are returned; and the blocks of heads for further tokens. */
    .keys = CALM_SINGLE_LIST " " CALM_SINGLE_WORD " attention_bias mlp_bias use_bias use_conv_bias mamba_num_heads "
            "mamba_head_dim n_groups ssm_state_size conv_kernel mamba_hidden_act time_step_min n_routed_experts "
            "num_experts_per_tok moe_intermediate_size moe_shared_expert_intermediate_size n_shared_experts "
            "moe_latent_size norm_topk_prob n_group topk_group routed_scaling_factor sliding_window rope_theta "
            "partial_rotary_factor num_nextn_predict_layers mtp_layers_block_type mtp_hybrid_override_pattern "
            "time_step_limit expand norm_eps num_logits_to_keep",
    .aliases = "layer_types=layers_block_type num_local_experts=n_routed_experts mamba_n_groups=n_groups "
               "mamba_d_conv=conv_kernel mamba_expand=expand mamba_dt_min=time_step_min mamba_dt_max=time_step_max "
               "mamba_dt_limit=time_step_limit mamba_dt_init_floor=time_step_floor mamba_conv_bias=use_conv_bias "
               "mamba_chunk_size=chunk_size",
    .read_config = read_config,
};
