/* Gemma 2: norms (times 1 + w) before and after each sublayer, soft caps on attention scores and logits, embeddings
 * times sqrt(D), every other block slides, gated tanh-GELU MLP, tied head.
 *
 *   x += post_attention_layernorm(attn(input_layernorm(x)))
 *   x += post_feedforward_layernorm(mlp(pre_feedforward_layernorm(x)))
 *
 * Reference: arXiv 2408.00118; transformers' modeling_gemma2.py. */
#include "ptq/families/gemma.h"

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    CALM_TRY(calm_gemma_read(ctx, path, root, 50, 30, config));
    /* The list of layer types, which newer configs have, takes precedence over the pattern. */
    return calm_config_windows(ctx, path, root, 4096, calm_slides_every_other, 0, config);
}

static const calm_names names = {CALM_GEMMA_NAMES};

const calm_arch calm_arch_gemma2 = {
    .name = "gemma2",
    .classes = "Gemma2ForCausalLM",
    .stem = "Gemma2",
    .names = &names,
    .norm = CALM_NORM_RMS_PLUS_ONE,
    .default_tied = true,
    .default_kv_heads = 4,
    .default_head_dim = 256,
    .default_positions = 8192,
    .default_rope_theta = 10000.0,
    .keys = "attention_bias hidden_activation query_pre_attn_scalar attn_logit_softcapping final_logit_softcapping "
            "sliding_window layer_types",
    .read_config = read_config,
};
