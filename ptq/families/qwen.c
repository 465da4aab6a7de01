/* Readers of config.json that the Qwen families share. */
#include "ptq/families/qwen.h"

#include "ptq/base/text.h"

bool calm_qwen_slides(size_t block, int64_t max_window_layers)
{
    return (int64_t)block >= max_window_layers;
}

calm_status calm_qwen_windows(calm_ctx *ctx, const char *path, const calm_json *root, calm_slides_fn *slides,
                              calm_config *config)
{
    const char *type = calm_json_string(calm_json_get(root, "model_type"), "");
    bool sliding;
    int64_t first;
    CALM_TRY(calm_json_need_bool(ctx, path, root, "use_sliding_window", &(bool){false}, &sliding));
    CALM_TRY(calm_json_need_int(ctx, path, root, "max_window_layers", &(int64_t){28}, 0, 1 << 30, &first));
    /* The other two keys are read, and so checked, even if no block slides. */
    CALM_TRY(calm_config_windows(ctx, path, root, 4096, sliding ? slides : NULL, first, config));
    /* In Qwen3-VL no block slides, independent of its keys. */
    for (size_t i = 0; i < config->n_blocks && calm_text_listed("qwen3_vl_text|qwen3_vl_moe_text", '|', type); i++)
        config->window[i] = 0;
    return CALM_OK;
}
