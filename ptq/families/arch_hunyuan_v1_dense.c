/* Hunyuan (dense, V1): Llama's block with RMSNorm over each head of q and k after the rotary embedding.
 *
 *   x += o(attn(norm(rope(q(h))), norm(rope(k(h))), v(h))),  h = input_layernorm(x)
 *
 * Reference: transformers' modeling_hunyuan_v1_dense.py. */
#include <math.h>

#include "ptq/arch/arch.h"

/* "dynamic" with "alpha" stretches theta once, independent of the window's length. */
static calm_status read_alpha(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    const calm_json *scaling = calm_json_get(root, "rope_scaling");
    const calm_json *described = calm_json_size(scaling) ? scaling : calm_json_get(root, "rope_parameters");
    calm_rope_config *rope = &config->rope[CALM_ROPE_GLOBAL];
    const double d = (double)config->head_dim;
    double alpha;
    CALM_TRY(calm_json_need_number(ctx, path, described, "alpha", &(double){0}, 0, 1e9, &alpha));
    if (alpha == 0 || rope->kind != CALM_ROPE_DYNAMIC)
        return CALM_OK;
    rope->kind = CALM_ROPE_DEFAULT;
    rope->theta *= pow(alpha, d / (d - 2));
    return CALM_OK;
}

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    CALM_TRY(read_alpha(ctx, path, root, config));
    return calm_config_attention_biases(ctx, path, root, config);
}

static const calm_names names = {CALM_USUAL_MODULES,
    CALM_PRE_NORMS,
    CALM_QK_NORMS("self_attn.query_layernorm", "self_attn.key_layernorm")};

const calm_arch calm_arch_hunyuan_v1_dense = {
    .name = "hunyuan_v1_dense",
    .classes = "HunYuanDenseV1ForCausalLM",
    .stem = "HunYuanDenseV1",
    .names = &names,
    .qk_norm = CALM_QK_NORM_HEAD,
    .late_qk_norm = true,
    .default_rope_theta = 10000.0,
    .default_eps = 1e-5,
    .rope_keys = "alpha",
    .keys = "attention_bias cla_share_factor attention_head_dim dense_list eod_token_id pad_id im_start_id im_end_id "
            "im_newline_id text_start_id text_end_id mask_init_id org_vocab_size pool_type class_num",
    .fixed = "use_qk_norm=true use_cla=false norm_type=rms mlp_bias=false add_classification_head=false",
    .read_config = read_config,
};
