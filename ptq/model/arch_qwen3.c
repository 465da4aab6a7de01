/* Qwen3 (dense): pre-norm RMSNorm, grouped-query attention with RMSNorm over each head of q and k before RoPE,
 * gated SiLU MLP, head tied or not.
 *
 *   x += o(attn(rope(norm(q(h))), rope(norm(k(h))), v(h))),  h = input_layernorm(x)
 *   x += down(silu(gate(h)) * up(h)),                        h = post_attention_layernorm(x)
 *
 * Reference: Qwen3 Technical Report, arXiv 2505.09388; transformers' modeling_qwen3.py. */
#include "ptq/model/arch.h"

#include <string.h>

/* Blocks slide if use_sliding_window and their number is at least max_window_layers; layer_types, when present,
 * says it outright. */
static calm_status read_windows(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    const bool no = false;
    const int64_t all_blocks = (int64_t)config->n_blocks, no_window = 0;
    bool sliding;
    int64_t width, first;
    CALM_TRY(calm_json_need_bool(ctx, path, root, "use_sliding_window", &no, &sliding));
    CALM_TRY(calm_json_need_int(ctx, path, root, "sliding_window", &no_window, 1, 1 << 30, &width));
    CALM_TRY(calm_json_need_int(ctx, path, root, "max_window_layers", &all_blocks, 0, 1 << 30, &first));
    const calm_json *types = calm_json_get(root, "layer_types");
    if (calm_json_typeof(types) == CALM_JSON_NULL)
        types = NULL;    /* absent, or null */
    if (types && calm_json_size(types) != config->n_blocks)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"layer_types\": %zu entries, expected %zu (num_hidden_layers)", path,
                         calm_json_size(types), config->n_blocks);
    for (size_t i = 0; i < config->n_blocks; i++) {
        const char *type = types ? calm_json_string(calm_json_at(types, i), "") : NULL;
        bool slides = type ? strcmp(type, "sliding_attention") == 0 : sliding && (int64_t)i >= first;
        if (type && !slides && strcmp(type, "full_attention") != 0)
            return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"layer_types\"[%zu]: \"%s\" is not supported", path, i,
                             type);
        if (slides && width == 0)
            return calm_fail(ctx, CALM_EFORMAT, "%s: block %zu slides, but \"sliding_window\" is missing", path, i);
        config->window[i] = slides ? (size_t)width : 0;
    }
    return CALM_OK;
}

const calm_arch calm_arch_qwen3 = {
    .name = "qwen3",
    .class_name = "Qwen3ForCausalLM",
    .model_type = "qwen3",
    .prefix = "model.",
    .qk_norm = CALM_QK_NORM_HEAD,
    .default_kv_heads = 32,
    .default_head_dim = 128,
    .default_rope_theta = 10000.0,
    .read_config = read_windows,
};
