/* GLM-4-0414: norms before and after each sublayer, gate and up in one matrix, a rotary embedding of neighbouring
 * channels in half of each head.
 *
 *   x += post_self_attn_layernorm(attn(input_layernorm(x)))
 *   x += post_mlp_layernorm(mlp(post_attention_layernorm(x)))
 *
 * Reference: arXiv 2406.12793; transformers' modeling_glm4.py. */
#include "ptq/arch/arch.h"

/* Sets the biases of q, k and v. */
static calm_status read_biases(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    bool bias;
    /* o never has a bias. */
    CALM_TRY(calm_config_switch(ctx, path, root, "attention_bias", true, &bias));
    config->bias[CALM_ROLE_Q] = config->bias[CALM_ROLE_K] = config->bias[CALM_ROLE_V] = bias;
    return CALM_OK;
}

static const calm_names names = {
    CALM_USUAL_ENDS,
    .role = {CALM_ATTENTION_ROLES("self_attn."),
             [CALM_ROLE_FUSED_GATE_UP] = "mlp.gate_up_proj", [CALM_ROLE_DOWN] = "mlp.down_proj"},
    .norm = {[CALM_SUBLAYER_ATTENTION] = {[CALM_NORM_IN] = "input_layernorm",
                                          [CALM_NORM_OUT] = "post_self_attn_layernorm"},
             [CALM_SUBLAYER_MLP] = {[CALM_NORM_IN] = "post_attention_layernorm",
                                    [CALM_NORM_OUT] = "post_mlp_layernorm"}},
};

const calm_arch calm_arch_glm4 = {
    .name = "glm4",
    .classes = "Glm4ForCausalLM",
    .stem = "Glm4",
    .names = &names,
    .default_kv_heads = 2,
    .default_head_dim = 128,
    .default_positions = 131072,
    .default_rope_theta = 10000.0,
    .partial_rope = 0.5,
    .neighbours = true,
    .default_eps = 1.5625e-7,
    .keys = "attention_bias",
    .read_config = read_biases,
};
