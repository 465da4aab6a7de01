/* Granite: Llama's block with multipliers of embeddings, scores, residuals and logits.
 *
 *   x = e embed;  x += r attn(input_layernorm(x));  x += r mlp(post_attention_layernorm(x));  logits / l
 *
 * Reference: Granite 3.0 language models (IBM, 2024); transformers' modeling_granite.py. */
#include "ptq/arch/arch.h"

/* Reads biases of both sublayers, then the four multipliers. */
static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    CALM_TRY(calm_config_attention_biases(ctx, path, root, config));
    CALM_TRY(calm_config_mlp_biases(ctx, path, root, config));
    return calm_config_multipliers(ctx, path, root, config);
}

const calm_arch calm_arch_granite = {
    .name = "granite",
    .classes = "GraniteForCausalLM",
    .stem = "Granite",
    .names = &calm_names_llama,
    .default_rope_theta = 10000.0,
    .keys = "attention_bias mlp_bias embedding_multiplier attention_multiplier residual_multiplier logits_scaling",
    .read_config = read_config,
};
