/* SmolLM3: Llama's block; some blocks have no rotary embedding, by default every fourth.
 *
 * Reference: transformers' modeling_smollm3.py. */
#include "ptq/arch/arch.h"

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    const bool listed = calm_json_typeof(calm_json_get(root, "layer_types")) != CALM_JSON_NULL;
    int64_t width;
    bool sliding;
    CALM_TRY(calm_config_attention_biases(ctx, path, root, config));
    CALM_TRY(calm_config_mlp_biases(ctx, path, root, config));
    CALM_TRY(calm_config_no_rope(ctx, path, root, false, config));
    CALM_TRY(calm_json_need_bool(ctx, path, root, "use_sliding_window", &(bool){false}, &sliding));
    CALM_TRY(calm_json_need_int(ctx, path, root, "sliding_window", &(int64_t){0}, 0, 1 << 30, &width));
    CALM_TRY(calm_config_windows(ctx, path, root, 0, NULL, 0, config));
    /* Without "layer_types" the blocks without rotary embedding slide. */
    for (size_t i = 0; i < config->n_blocks && sliding && !listed; i++)
        config->window[i] = config->no_rope[i] ? (size_t)width : 0;
    return CALM_OK;
}

const calm_arch calm_arch_smollm3 = {
    .name = "smollm3",
    .classes = "SmolLM3ForCausalLM",
    .stem = "SmolLM3",
    .names = &calm_names_llama,
    .default_tied = true,
    .default_kv_heads = 4,
    .default_positions = 32768,
    .default_rope_theta = 2000000.0,
    .keys = "attention_bias mlp_bias no_rope_layers no_rope_layer_interval use_sliding_window sliding_window "
            "layer_types",
    .read_config = read_config,
};
