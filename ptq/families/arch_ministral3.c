/* Ministral 3: Mistral's block; beyond the length of the first training queries are scaled by the logarithm of the
 * position.
 *
 *   q *= 1 + beta ln(1 + floor(position / original_max_position_embeddings))
 *
 * Reference: transformers' modeling_ministral3.py. */
#include "ptq/arch/arch.h"

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    CALM_TRY(calm_config_query_growth(ctx, path, root, config));
    /* When absent there is no window, unlike Mistral. */
    return calm_config_windows(ctx, path, root, 0, calm_slides_always, 0, config);
}

const calm_arch calm_arch_ministral3 = {
    .name = "ministral3",
    .classes = "Ministral3ForCausalLM",
    .stem = "Ministral3",
    .names = &calm_names_llama,
    .default_kv_heads = 8,
    .default_head_dim = 128,
    .default_positions = 262144,
    .default_rope_theta = 10000.0,
    .default_eps = 1e-5,
    .rope_keys = "llama_4_scaling_beta max_position_embeddings",
    .keys = "sliding_window",
    .read_config = read_config,
};
