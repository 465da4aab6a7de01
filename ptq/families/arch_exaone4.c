/* EXAONE 4: norms after each sublayer, RMSNorm over heads of q and k; in models with sliding blocks the full blocks
 * have no rotary embedding.
 *
 *   x += post_attention_layernorm(attn(x));  x += post_feedforward_layernorm(mlp(x))
 *
 * Reference: arXiv 2507.11407; transformers' modeling_exaone4.py. */
#include "ptq/arch/arch.h"

/* "LLLG" occurs next to an equivalent "layer_types"; null where no block slides. */
static calm_status read_pattern(calm_ctx *ctx, const char *path, const calm_json *root, int64_t *out)
{
    const calm_json_type listed = calm_json_typeof(calm_json_get(root, "layer_types"));
    *out = 4;
    return listed == CALM_JSON_NULL
               ? calm_json_need_int(ctx, path, root, "sliding_window_pattern", out, 1, 4096, out)
               : CALM_OK;
}

/* Full blocks of a model with sliding blocks have no rotary embedding. */
static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    const calm_json *window = calm_json_get(root, "sliding_window");
    const bool none = window && calm_json_typeof(window) == CALM_JSON_NULL;
    int64_t pattern;
    CALM_TRY(read_pattern(ctx, path, root, &pattern));
    CALM_TRY(calm_config_windows(ctx, path, root, 4096, none ? NULL : calm_slides_between, pattern, config));
    CALM_TRY(calm_config_new_no_rope(ctx, config));
    for (size_t i = 0; i < config->n_blocks; i++)
        config->no_rope[i] = !none && !calm_config_slides(config, i);
    return CALM_OK;
}

static const calm_names names = {
    CALM_USUAL_MODULES,
    CALM_POST_NORMS,
    CALM_QK_NORMS("self_attn.q_norm", "self_attn.k_norm"),
};

const calm_arch calm_arch_exaone4 = {
    .name = "exaone4",
    .classes = "Exaone4ForCausalLM",
    .stem = "Exaone4",
    .names = &names,
    .qk_norm = CALM_QK_NORM_HEAD,
    .default_kv_heads = 32,
    .default_rope_theta = 10000.0,
    .default_eps = 1e-5,
    .keys = "sliding_window sliding_window_pattern layer_types",
    .read_config = read_config,
};
