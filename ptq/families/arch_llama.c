/* Llama (also SmolLM, TinyLlama and others that name its class): pre-norm RMSNorm, grouped-query attention, gated SiLU
 * MLP, head tied or not, biases by two switches.
 *
 *   x += o(attn(rope(q(h)), rope(k(h)), v(h))),  h = input_layernorm(x)
 *   x += down(silu(gate(h)) * up(h)),            h = post_attention_layernorm(x)
 *
 * Reference: arXiv 2307.09288, 2407.21783; transformers' modeling_llama.py. */
#include "ptq/arch/arch.h"

static calm_status read_biases(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    CALM_TRY(calm_config_mlp_biases(ctx, path, root, config));
    return calm_config_attention_biases(ctx, path, root, config);
}

const calm_arch calm_arch_llama = {
    .name = "llama",
    .classes = "LlamaForCausalLM",
    .stem = "Llama",
    .names = &calm_names_llama,
    .default_rope_theta = 10000.0,
    .keys = "attention_bias mlp_bias",
    .read_config = read_biases,
};
