/* Reads from config.json what a token carries from block to block besides its hidden row: keys and values that blocks
 * share, and residual streams. */
#include "ptq/arch/arch.h"
#include "ptq/base/text.h"

/* ---- keys and values ---- */

/* Returns the last block of a type before block `first`; n_blocks: there is none. */
static size_t last_of_type(const calm_config *config, size_t first, bool slides)
{
    for (size_t i = first; i > 0; i--)
        if (calm_config_slides(config, i - 1) == slides)
            return i - 1;
    return config->n_blocks;
}

calm_status calm_config_shared_keys(calm_ctx *ctx, const char *path, const calm_json *root, int64_t usual,
                                    calm_config *config)
{
    size_t at[2] = {0, 0};
    int64_t n_shared;
    bool wide = false;
    /* Code of the other families does not read the key. */
    if (calm_text_listed(config->arch->keys, ' ', "use_double_wide_mlp"))
        CALM_TRY(calm_json_need_bool(ctx, path, root, "use_double_wide_mlp", &wide, &wide));
    CALM_TRY(calm_json_need_int(ctx, path, root, "num_kv_shared_layers", &usual, 0, (int64_t)config->n_blocks - 1,
                                &n_shared));
    /* The default of the class, which is not in the file, has not been checked against n_blocks. */
    if (n_shared >= (int64_t)config->n_blocks)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"num_kv_shared_layers\": expected 0 to %zu, found %lld (absent)",
                         path, config->n_blocks - 1, (long long)n_shared);
    /* At most two blocks pass on keys and values: the last of each type before the first block that shares. */
    const size_t first = config->n_blocks - (size_t)n_shared;
    for (size_t i = first; i < config->n_blocks; i++) {
        const bool slides = calm_config_slides(config, i);
        const size_t maker = last_of_type(config, first, slides);
        if (maker == config->n_blocks)
            return calm_fail(ctx, CALM_EFORMAT, "%s: \"num_kv_shared_layers\" %lld: block %zu has no block of its type "
                             "before the first of them, block %zu", path, (long long)n_shared, i, first);
        calm_block_shape *shape = &config->shapes[i], *kept = &config->shapes[maker];
        if (kept->kv != CALM_KV_KEPT) {
            kept->kv = CALM_KV_KEPT;
            kept->kv_at = at[slides] = config->carried;
            config->carried += 2 * kept->n_kv * kept->head_dim;
        }
        shape->kv = CALM_KV_SHARED;
        shape->kv_at = at[slides];
        shape->k_is_v = false;
        shape->inner *= wide ? 2 : 1;
    }
    return CALM_OK;
}

/* ---- streams ---- */

calm_status calm_config_streams(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    calm_stream_config *streams = &config->streams;
    int64_t n, active;
    CALM_TRY(calm_json_need_int(ctx, path, root, "altup_num_inputs", &(int64_t){4}, 1, (int64_t)CALM_STREAMS, &n));
    CALM_TRY(calm_json_need_int(ctx, path, root, "altup_active_idx", &(int64_t){0}, 0, n - 1, &active));
    CALM_TRY(calm_config_switch(ctx, path, root, "altup_correct_scale", true, &streams->scale));
    CALM_TRY(calm_config_size(ctx, path, root, "laurel_rank", &(int64_t){64}, &streams->rank));
    /* The columns of a carried row cannot overflow: each dimension has a limit, and the streams are few. */
    streams->n = (size_t)n;
    streams->active = (size_t)active;
    streams->at = config->carried;
    config->carried += streams->n * config->hidden;
    return CALM_OK;
}
