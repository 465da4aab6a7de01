/* Llama (also SmolLM, TinyLlama and others that name its class): pre-norm RMSNorm, grouped-query attention, gated SiLU
 * MLP, head tied or not, biases by two switches.
 *
 *   x += o(attn(rope(q(h)), rope(k(h)), v(h))),  h = input_layernorm(x)
 *   x += down(silu(gate(h)) * up(h)),            h = post_attention_layernorm(x)
 *
 * Reference: arXiv 2307.09288, 2407.21783; transformers' modeling_llama.py. */
#include "ptq/model/arch.h"

static calm_status read_biases(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    const bool no = false;
    bool attention, mlp;
    CALM_TRY(calm_json_need_bool(ctx, path, root, "attention_bias", &no, &attention));
    CALM_TRY(calm_json_need_bool(ctx, path, root, "mlp_bias", &no, &mlp));
    for (calm_role role = 0; role < CALM_N_ROLES; role++)
        config->bias[role] = calm_job_sublayer(calm_role_job(role)) == CALM_SUBLAYER_ATTENTION ? attention : mlp;
    return CALM_OK;
}

const calm_arch calm_arch_llama = {
    .name = "llama",
    .classes = "LlamaForCausalLM",
    .model_types = "llama",
    .prefixes = "model.|",
    .names = &calm_names_llama,
    .default_rope_theta = 10000.0,
    .keys = "attention_bias mlp_bias",
    .read_config = read_biases,
};
