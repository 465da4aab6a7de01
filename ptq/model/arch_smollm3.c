/* SmolLM3: Llama's block; some blocks have no rotary embedding, every fourth when the config is silent.
 *
 * Reference: transformers' modeling_smollm3.py. */
#include "ptq/model/arch.h"

/* "no_rope_layers" has 1 for a block that is rotated, and at least one entry for each block. */
static calm_status read_list(calm_ctx *ctx, const char *path, const calm_json *list, calm_config *config)
{
    CALM_TRY(calm_json_expect(ctx, list, CALM_JSON_ARRAY, "%s: \"no_rope_layers\"", path));
    if (calm_json_size(list) < config->n_blocks)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"no_rope_layers\": %zu entries, expected %zu (num_hidden_layers)",
                         path, calm_json_size(list), config->n_blocks);
    for (size_t i = 0; i < config->n_blocks; i++) {
        const int64_t rotated = calm_json_int(calm_json_at(list, i), -1);
        if (rotated != 0 && rotated != 1)
            return calm_fail(ctx, CALM_EFORMAT, "%s: \"no_rope_layers\"[%zu]: expected 0 or 1", path, i);
        config->no_rope[i] = !rotated;
    }
    return CALM_OK;
}

static calm_status read_no_rope(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    const calm_json *list = calm_json_get(root, "no_rope_layers");
    int64_t interval;
    CALM_TRY(calm_config_new_no_rope(ctx, config));
    CALM_TRY(calm_json_need_int(ctx, path, root, "no_rope_layer_interval", &(int64_t){4}, 1, 4096, &interval));
    if (calm_json_typeof(list) != CALM_JSON_NULL)
        return read_list(ctx, path, list, config);
    for (size_t i = 0; i < config->n_blocks; i++)
        config->no_rope[i] = (i + 1) % (size_t)interval == 0;
    return CALM_OK;
}

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    const bool listed = calm_json_typeof(calm_json_get(root, "layer_types")) != CALM_JSON_NULL;
    int64_t width;
    bool sliding;
    CALM_TRY(calm_config_attention_biases(ctx, path, root, config));
    CALM_TRY(calm_config_mlp_biases(ctx, path, root, config));
    CALM_TRY(read_no_rope(ctx, path, root, config));
    CALM_TRY(calm_json_need_bool(ctx, path, root, "use_sliding_window", &(bool){false}, &sliding));
    CALM_TRY(calm_json_need_int(ctx, path, root, "sliding_window", &(int64_t){0}, 0, 1 << 30, &width));
    CALM_TRY(calm_config_windows(ctx, path, root, 0, NULL, 0, config));
    /* Without a list the blocks without rope are those that slide. */
    for (size_t i = 0; i < config->n_blocks && sliding && !listed; i++)
        config->window[i] = config->no_rope[i] ? (size_t)width : 0;
    return CALM_OK;
}

const calm_arch calm_arch_smollm3 = {
    .name = "smollm3",
    .classes = "SmolLM3ForCausalLM",
    .stem = "SmolLM3",
    .prefixes = CALM_DECODER_PREFIXES,
    .names = &calm_names_llama,
    .default_tied = true,
    .default_kv_heads = 4,
    .default_positions = 32768,
    .default_rope_theta = 2000000.0,
    .keys = "attention_bias mlp_bias no_rope_layers no_rope_layer_interval use_sliding_window sliding_window "
            "layer_types",
    .read_config = read_config,
};
