/* Nemotron-H, Nemotron-Nano 2 and 3: blocks of one sublayer, x += f(norm(x)), which is Mamba-2 (kind_mamba.c),
 * attention without rotary embedding, an MLP down(relu(up(h))^2), or a mixture of such MLPs with DeepSeek's router,
 * with moe_latent_size in a latent space.
 *
 * References: arXiv 2504.03624; transformers' modeling_nemotron_h.py. */
#include "ptq/families/mixers.h"

static const calm_mamba_keys mamba = {
    .heads = "mamba_num_heads", .head_dim = "mamba_head_dim", .groups = "n_groups", .state = "ssm_state_size",
    .taps = "conv_kernel", .conv_bias = "use_conv_bias", .bias = "use_bias", .least_step = "time_step_min",
    .activation = "mamba_hidden_act", .usual_head_dim = 64, .usual_groups = 8, .usual_state = 128};

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    CALM_TRY(calm_config_mlp_biases(ctx, path, root, config));
    CALM_TRY(calm_config_mamba_sizes(ctx, path, root, &mamba, config));
    return calm_config_single(ctx, path, root, config);
}

/* Checkpoints use the prefix "backbone." where transformers uses "model.". */
static const calm_names names = {
    .blocks = "layers", .embed = "embeddings", .final_norm = "norm_f", .head = "lm_head",
    .role = {CALM_ATTENTION_ROLES("mixer."), CALM_MAMBA_ROLES("mixer."), [CALM_ROLE_UP] = "mixer.up_proj",
             [CALM_ROLE_DOWN] = "mixer.down_proj"},
    CALM_NORMS(IN, "norm", "norm"),
    .readers = &names,
    .plain = {CALM_MAMBA_PLAINS("mixer."), [CALM_PLAIN_EXPERTS_IN] = "mixer.fc1_latent_proj.weight",
              [CALM_PLAIN_EXPERTS_OUT] = "mixer.fc2_latent_proj.weight"},
    .moe = {CALM_GROUPED_NAMES("mixer.")}};

const calm_arch calm_arch_nemotron_h = {
    .name = "nemotron_h",
    .classes = "NemotronHForCausalLM",
    .stem = "NemotronH",
    .prefixes = "backbone.|model.|",
    .names = &names,
    .sizes = CALM_SIZES("intermediate_size", .eps = "layer_norm_epsilon", .activation = "mlp_hidden_act"),
    CALM_SINGLE_BLOCKS,
    .default_kv_heads = 8,
    .default_head_dim = 128,
    .default_positions = 4096,
    .default_activation = "relu2",
    .default_eps = 1e-5,
    /* Files also have keys that transformers does not read: a rotary embedding, limits of steps, an expanded width,
     * another epsilon, how many logits are returned; and the blocks of heads for further tokens. */
    .keys = CALM_GROUPED_KEYS " mlp_bias use_bias use_conv_bias mamba_num_heads mamba_head_dim n_groups ssm_state_size "
            "conv_kernel mamba_hidden_act time_step_min moe_shared_expert_intermediate_size moe_latent_size rope_theta "
            "partial_rotary_factor mtp_layers_block_type mtp_hybrid_override_pattern time_step_limit expand norm_eps "
            "num_logits_to_keep",
    .fixed = "attention_bias=false sliding_window=null",
    .aliases = "layer_types=layers_block_type num_local_experts=n_routed_experts mamba_n_groups=n_groups "
               "mamba_d_conv=conv_kernel mamba_expand=expand mamba_dt_min=time_step_min mamba_dt_max=time_step_max "
               "mamba_dt_limit=time_step_limit mamba_dt_init_floor=time_step_floor mamba_conv_bias=use_conv_bias "
               "mamba_chunk_size=chunk_size",
    .read_config = read_config,
};
