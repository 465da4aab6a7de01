/* StarCoder2: LayerNorm before each sublayer, biases everywhere or nowhere, an MLP of two matrices without a gate.
 *
 *   x += o(attn(input_layernorm(x)));  x += c_proj(gelu(c_fc(post_attention_layernorm(x))))
 *
 * Reference: arXiv 2402.19173; transformers' modeling_starcoder2.py. */
#include "ptq/arch/arch.h"

/* One switch sets all biases. */
static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    CALM_TRY(calm_config_use_bias(ctx, path, root, true, config));
    return calm_config_windows(ctx, path, root, 0, calm_slides_always, 0, config);
}

static const calm_names names = {
    CALM_USUAL_ENDS,
    .role = {CALM_ATTENTION_ROLES("self_attn."),
             [CALM_ROLE_UP] = "mlp.c_fc", [CALM_ROLE_DOWN] = "mlp.c_proj"},
    CALM_PRE_NORMS,
};

const calm_arch calm_arch_starcoder2 = {
    .name = "starcoder2",
    .classes = "Starcoder2ForCausalLM",
    .stem = "Starcoder2",
    .names = &names,
    .norm = CALM_NORM_LAYER,
    .eps_key = "norm_epsilon",
    .default_tied = true,
    .default_kv_heads = 2,
    .default_positions = 4096,
    .default_rope_theta = 10000.0,
    .default_eps = 1e-5,
    .default_activation = "gelu_pytorch_tanh",
    .keys = "use_bias sliding_window norm_epsilon residual_dropout embedding_dropout layer_norm_epsilon "
            "activation_function attention_softmax_in_fp32 scale_attention_softmax_in_fp32",
    .fixed = "norm_type=layer_norm mlp_type=default scale_attn_weights=true",
    .read_config = read_config,
};
