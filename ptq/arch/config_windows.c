/* Reads from config.json which tokens each block sees: sliding windows and chunks. */
#include <string.h>

#include "ptq/arch/config.h"

/* ---- patterns of blocks ---- */

bool calm_slides_every_other(size_t block, int64_t pattern)
{
    (void)pattern;
    return block % 2 == 0;
}

bool calm_slides_between(size_t block, int64_t pattern)
{
    return (block + 1) % (size_t)pattern != 0;
}

bool calm_slides_always(size_t block, int64_t pattern)
{
    (void)block;
    (void)pattern;
    return true;
}

bool calm_slides_after_first(size_t block, int64_t pattern)
{
    return block % (size_t)pattern != 0;
}

/* ---- windows ---- */

calm_status calm_config_windows(calm_ctx *ctx, const char *path, const calm_json *root, int64_t fallback,
                                calm_slides_fn *slides, int64_t pattern, calm_config *config)
{
    const int64_t none = calm_json_get(root, "sliding_window") ? 0 : fallback;    /* null means no window */
    int64_t width;
    CALM_TRY(calm_json_need_int(ctx, path, root, "sliding_window", &none, 0, 1 << 30, &width));
    const calm_json *types = calm_json_get(root, "layer_types");
    if (calm_json_typeof(types) == CALM_JSON_NULL)
        types = NULL;    /* absent, or null */
    if (types)
        CALM_TRY(calm_config_one_per_block(ctx, path, "layer_types", types, config));
    for (size_t i = 0; i < config->n_blocks; i++) {
        /* The explicit list takes precedence over the pattern: files may have both. */
        const char *type = types ? calm_json_string(calm_json_at(types, i), "") : NULL;
        const bool slide = type ? strcmp(type, "sliding_attention") == 0 : slides && slides(i, pattern);
        if (type && !slide && strcmp(type, "full_attention") != 0)
            return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"layer_types\"[%zu]: \"%s\" is not supported; expected "
                             "full_attention or sliding_attention", path, i, type);
        /* A width of null is a choice (Mistral 0.2); a missing width for a block that slides by the list is a fault. */
        if (slide && width == 0 && (type || calm_json_typeof(calm_json_get(root, "sliding_window")) != CALM_JSON_NULL))
            return calm_fail(ctx, CALM_EFORMAT, "%s: block %zu slides, but \"sliding_window\" is 0 or missing", path,
                             i);
        config->window[i] = slide ? (size_t)width : 0;
        /* Only Gemma 3 has a second embedding; in other families its theta is 0. */
        config->local_rope[i] = slide && config->rope[CALM_ROPE_LOCAL].theta > 0;
    }
    return CALM_OK;
}

calm_status calm_config_windows_by(calm_ctx *ctx, const char *path, const calm_json *root, int64_t fallback,
                                   const char *key, int64_t usual, calm_slides_fn *slides, calm_config *config)
{
    int64_t pattern;
    /* The functions divide by it. */
    CALM_TRY(calm_json_need_int(ctx, path, root, key, &usual, 1, 4096, &pattern));
    return calm_config_windows(ctx, path, root, fallback, slides, pattern, config);
}

void calm_config_full_last(calm_ctx *ctx, const char *path, calm_config *config)
{
    const size_t last = config->n_blocks - 1;
    if (config->window[last])
        calm_log(ctx, CALM_LOG_WARNING, "%s: \"layer_types\": block %zu, the last one, has full attention as in "
                 "transformers, though the list says otherwise", path, last);
    config->window[last] = 0;
    config->local_rope[last] = false;
}

void calm_config_windows_both_ways(calm_config *config)
{
    /* Integer division, like in transformers. */
    for (size_t i = 0; i < config->n_blocks; i++)
        config->window[i] = config->window[i] ? config->window[i] / 2 + 1 : 0;
}

/* ---- chunks ---- */

calm_status calm_config_chunks(calm_ctx *ctx, const char *path, const calm_json *root, int64_t usual,
                               calm_config *config)
{
    const calm_json *types = calm_json_get(root, "layer_types");
    const bool listed = calm_json_typeof(types) != CALM_JSON_NULL;
    int64_t size;
    if (listed)
        CALM_TRY(calm_config_one_per_block(ctx, path, "layer_types", types, config));
    /* The class refuses to run with null. */
    CALM_TRY(calm_json_need_int(ctx, path, root, "attention_chunk_size", &usual, 1, 1 << 30, &size));
    config->chunked = true;
    for (size_t i = 0; i < config->n_blocks; i++) {
        const char *type = listed ? calm_json_string(calm_json_at(types, i), "") : NULL;
        const bool chunk = type ? strcmp(type, "chunked_attention") == 0 : !config->no_rope[i];
        if (type && !chunk && strcmp(type, "full_attention") != 0)
            return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"layer_types\"[%zu]: \"%s\" is not supported; expected "
                             "full_attention or chunked_attention", path, i, type);
        config->window[i] = chunk ? (size_t)size : 0;
    }
    return CALM_OK;
}
