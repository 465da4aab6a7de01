/* gpt-oss: every other block slides; each head of attention has a sink, an additional learned logit of its softmax; the
 * MLP of every block is a mixture of experts with biases and a clamped gate.
 *
 * Reference: arXiv 2508.10925; transformers' modeling_gpt_oss.py. */
#include "ptq/arch/arch.h"

static calm_status read_biases(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    bool bias;
    CALM_TRY(calm_config_switch(ctx, path, root, "attention_bias", true, &bias));
    /* Biases of attention's linears; experts and the router always have biases. */
    config->bias[CALM_ROLE_Q] = config->bias[CALM_ROLE_K] = config->bias[CALM_ROLE_V] = config->bias[CALM_ROLE_O] =
        bias;
    config->moe.bias = true;
    return CALM_OK;
}

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    /* The softmax over the chosen logits equals that over all, divided by the sum of the chosen. */
    const calm_moe_keys keys = {"num_local_experts", "num_experts_per_tok", "intermediate_size", true};
    const calm_json *described;
    double limit, alpha;
    /* Older files lack swiglu_alpha, which was a constant of the code. */
    CALM_TRY(calm_json_need_number(ctx, path, root, "swiglu_limit", &(double){7}, 1e-3, 1e6, &limit));
    CALM_TRY(calm_json_need_number(ctx, path, root, "swiglu_alpha", &(double){1.702}, 1e-3, 1e6, &alpha));
    CALM_TRY(read_biases(ctx, path, root, config));
    CALM_TRY(calm_config_mixture(ctx, path, root, &keys, config));
    config->glu_limit = (float)limit;
    config->glu_alpha = (float)alpha;
    CALM_TRY(calm_config_rope_object(ctx, path, root, &described));
    return calm_config_windows(ctx, path, root, 128, calm_slides_every_other, 0, config);
}

static const calm_names names = {CALM_USUAL_MODULES,
    .parent = "self_attn", .engine_parent = "attn",
    CALM_PRE_NORMS,
    .plain = {[CALM_PLAIN_SINKS] = "self_attn.sinks", [CALM_PLAIN_ROUTER_BIAS] = "mlp.router.bias"},
    .moe = {.router = "mlp.router", .experts = "mlp.experts", .fused_gate_up = "mlp.experts.gate_up_proj",
            .fused_down = "mlp.experts.down_proj", .fused_gate_up_bias = "mlp.experts.gate_up_proj_bias",
            .fused_down_bias = "mlp.experts.down_proj_bias", .interleaved = true}};

const calm_arch calm_arch_gpt_oss = {
    .name = "gpt_oss",
    .classes = "GptOssForCausalLM",
    .stem = "GptOss",
    .names = &names,
    .default_kv_heads = 8,
    .default_head_dim = 64,
    .default_positions = 131072,
    .default_rope_theta = 150000.0,
    .default_eps = 1e-5,
    .keys = "attention_bias sliding_window layer_types num_local_experts num_experts_per_tok "
            "swiglu_limit swiglu_alpha",
    .aliases = "num_experts=num_local_experts",
    .read_config = read_config,
};
