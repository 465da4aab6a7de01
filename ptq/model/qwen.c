/* What the Qwen families' configs have in common. */
#include "ptq/model/qwen.h"

bool calm_qwen_slides(size_t block, int64_t max_window_layers)
{
    return (int64_t)block >= max_window_layers;
}

calm_status calm_qwen_windows(calm_ctx *ctx, const char *path, const calm_json *root, calm_slides_fn *slides,
                              calm_config *config)
{
    bool sliding;
    int64_t first;
    CALM_TRY(calm_json_need_bool(ctx, path, root, "use_sliding_window", &(bool){false}, &sliding));
    CALM_TRY(calm_json_need_int(ctx, path, root, "max_window_layers", &(int64_t){28}, 0, 1 << 30, &first));
    /* The other two keys are read, and so checked, also when nothing slides. */
    return calm_config_windows(ctx, path, root, 4096, sliding ? slides : NULL, first, config);
}
