/* Seed-OSS: Llama's block with head_dim from config.json, biases on q, k and v, and a separate switch for that of o.
 *
 * Reference: transformers' modeling_seed_oss.py. */
#include "ptq/arch/arch.h"

static calm_status read_biases(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    bool of_qkv, of_o;
    CALM_TRY(calm_config_switch(ctx, path, root, "attention_bias", true, &of_qkv));
    CALM_TRY(calm_json_need_bool(ctx, path, root, "attention_out_bias", &(bool){false}, &of_o));
    config->bias[CALM_ROLE_Q] = config->bias[CALM_ROLE_K] = config->bias[CALM_ROLE_V] = of_qkv;
    config->bias[CALM_ROLE_O] = of_o;
    return calm_config_mlp_biases(ctx, path, root, config);
}

const calm_arch calm_arch_seed_oss = {
    .name = "seed_oss",
    .classes = "SeedOssForCausalLM",
    .stem = "SeedOss",
    .names = &calm_names_llama,
    .default_kv_heads = 8,
    .default_head_dim = 128,
    .default_positions = 524288,
    .default_rope_theta = 10000.0,
    .keys = "attention_bias attention_out_bias mlp_bias residual_dropout",
    .read_config = read_biases,
};
