/* GLM-4.5, GLM-4.6, GLM-4.7: Llama's block with a rotary embedding of half of each head and, if use_qk_norm is set,
 * RMSNorm over heads of q and k; after the first blocks the MLP is DeepSeek's mixture.
 *
 * Reference: arXiv 2508.06471; transformers' modeling_glm4_moe.py. */
#include "ptq/arch/arch.h"

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    static const calm_grouped_defaults defaults = {1, 1, 1, 1, 1};
    bool norm;
    /* GLM-4.5-Air has no norms of q and k. */
    CALM_TRY(calm_json_need_bool(ctx, path, root, "use_qk_norm", &(bool){false}, &norm));
    if (!norm)
        config->qk_norm = CALM_QK_NORM_NONE;
    CALM_TRY(calm_config_attention_biases(ctx, path, root, config));
    config->bias[CALM_ROLE_O] = false;    /* the switch only concerns q, k and v */
    return calm_config_deepseek_mixture(ctx, path, root, true, &defaults, config);
}

static const calm_names names = {CALM_USUAL_MODULES,
    CALM_PRE_NORMS,
    CALM_QK_NORMS("self_attn.q_norm", "self_attn.k_norm"), .moe = CALM_GROUPED_MODULES};

const calm_arch calm_arch_glm4_moe = {
    .name = "glm4_moe",
    .classes = "Glm4MoeForCausalLM",
    .stem = "Glm4Moe",
    .names = &names,
    .qk_norm = CALM_QK_NORM_HEAD,
    .default_kv_heads = 8,
    .default_positions = 131072,
    .default_rope_theta = 10000.0,
    .partial_rope = 0.5,
    .default_eps = 1e-5,
    .keys = "attention_bias use_qk_norm first_k_dense_replace " CALM_GROUPED_KEYS,
    .aliases = "num_local_experts=n_routed_experts num_mtp_layers=num_nextn_predict_layers",
    .read_config = read_config,
};
