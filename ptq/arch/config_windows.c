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

/* ---- the list of types ---- */

/* Finds "layer_types", which has an entry for each block; NULL: absent or null. */
static calm_status find_types(calm_ctx *ctx, const char *path, const calm_json *root, const calm_config *config,
                              const calm_json **out)
{
    const calm_json *types = calm_json_get(root, "layer_types");
    *out = calm_json_typeof(types) == CALM_JSON_NULL ? NULL : types;
    return *out ? calm_config_one_per_block(ctx, path, "layer_types", types, config) : CALM_OK;
}

/* Sets *is to whether the list gives the block this type; "full_attention" is the only other one. */
static calm_status read_type(calm_ctx *ctx, const char *path, const calm_json *types, size_t block, const char *type,
                             bool *is)
{
    const char *found = calm_json_string(calm_json_at(types, block), "");
    *is = strcmp(found, type) == 0;
    return *is || strcmp(found, "full_attention") == 0
               ? CALM_OK
               : calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"layer_types\"[%zu]: \"%s\" is not supported; expected "
                           "full_attention or %s", path, block, found, type);
}

/* ---- windows ---- */

bool calm_config_slides(const calm_config *config, size_t block)
{
    return config->window[block] != 0;
}

calm_status calm_config_windows(calm_ctx *ctx, const char *path, const calm_json *root, int64_t fallback,
                                calm_slides_fn *slides, int64_t pattern, calm_config *config)
{
    const int64_t none = calm_json_get(root, "sliding_window") ? 0 : fallback;    /* null means no window */
    int64_t width;
    CALM_TRY(calm_json_need_int(ctx, path, root, "sliding_window", &none, 0, 1 << 30, &width));
    const calm_json *types;
    CALM_TRY(find_types(ctx, path, root, config, &types));
    for (size_t i = 0; i < config->n_blocks; i++) {
        /* The explicit list takes precedence over the pattern: files may have both. */
        bool slide = !types && slides && slides(i, pattern);
        if (types)
            CALM_TRY(read_type(ctx, path, types, i, "sliding_attention", &slide));
        /* A width of null is a choice (Mistral 0.2); a missing width for a block that slides by the list is a fault. */
        if (slide && width == 0 && (types || calm_json_typeof(calm_json_get(root, "sliding_window")) != CALM_JSON_NULL))
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
    if (calm_config_slides(config, last))
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
    const calm_json *types;
    int64_t size;
    CALM_TRY(find_types(ctx, path, root, config, &types));
    /* The class refuses to run with null. */
    CALM_TRY(calm_json_need_int(ctx, path, root, "attention_chunk_size", &usual, 1, 1 << 30, &size));
    config->chunked = true;
    for (size_t i = 0; i < config->n_blocks; i++) {
        bool chunk = !types && !config->no_rope[i];
        if (types)
            CALM_TRY(read_type(ctx, path, types, i, "chunked_attention", &chunk));
        config->window[i] = chunk ? (size_t)size : 0;
    }
    return CALM_OK;
}
