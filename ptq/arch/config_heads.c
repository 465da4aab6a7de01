/* Reads numbers and widths of heads that differ between blocks from config.json. */
#include <string.h>

#include "ptq/arch/config.h"

/* Reads one block's entry of per_layer_config. */
static calm_status read_entry(calm_ctx *ctx, const char *path, const char *number, const calm_json *entry,
                              calm_block_shape *shape)
{
    const char *key;
    const calm_json *value;
    /* Both default to the model's own values. */
    size_t *const out[] = {&shape->head_dim, &shape->n_kv};
    for (void *iter = NULL; calm_json_next(entry, &iter, &key, &value);) {
        const int which = strcmp(key, "head_dim") == 0 ? 0 : strcmp(key, "num_key_value_heads") == 0 ? 1 : -1;
        if (which < 0)
            return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"per_layer_config\": \"%s\": \"%s\" is not supported; "
                             "expected head_dim or num_key_value_heads", path, number, key);
        CALM_TRY(calm_config_size(ctx, path, entry, key, &(int64_t){(int64_t)*out[which]}, out[which]));
    }
    return CALM_OK;
}

/* Reads per_layer_config, the spelling of transformers 5: {"5": {"head_dim": 512}}. */
static calm_status read_entries(calm_ctx *ctx, const char *path, const calm_json *entries, calm_config *config)
{
    const char *key;
    const calm_json *value;
    CALM_TRY(calm_json_expect(ctx, entries, CALM_JSON_OBJECT, "%s: \"per_layer_config\"", path));
    for (void *iter = NULL; calm_json_next(entries, &iter, &key, &value);) {
        const size_t n = strlen(key);
        size_t block = 0;
        /* Parses digits until the number exceeds the blocks. */
        for (size_t i = 0; i < n && block < config->n_blocks; i++)
            block = key[i] >= '0' && key[i] <= '9' ? 10 * block + (size_t)(key[i] - '0') : config->n_blocks;
        if (n == 0 || block >= config->n_blocks)
            return calm_fail(ctx, CALM_EFORMAT, "%s: \"per_layer_config\": \"%s\": expected the number of a block, "
                             "below %zu", path, key, config->n_blocks);
        CALM_TRY(calm_json_expect(ctx, value, CALM_JSON_OBJECT, "%s: \"per_layer_config\": \"%s\"", path, key));
        CALM_TRY(read_entry(ctx, path, key, value, &config->shapes[block]));
    }
    return CALM_OK;
}

/* Reads the spelling of published files: one width and number of heads for all full blocks. */
static calm_status read_global(calm_ctx *ctx, const char *path, const calm_json *root, int64_t usual, bool k_is_v,
                               calm_config *config)
{
    const int64_t usual_kv = (int64_t)config->n_kv;
    size_t width, n_kv;
    CALM_TRY(calm_config_size(ctx, path, root, "global_head_dim", &usual, &width));
    CALM_TRY(calm_config_size(ctx, path, root, "num_global_key_value_heads", &usual_kv, &n_kv));
    for (size_t i = 0; i < config->n_blocks; i++) {
        if (calm_config_slides(config, i))
            continue;
        config->shapes[i].head_dim = width;
        /* transformers reads the number only with attention_k_eq_v. */
        config->shapes[i].n_kv = k_is_v ? n_kv : config->n_kv;
    }
    return CALM_OK;
}

/* Checks that blocks of a type are alike: they share a rotary embedding, and may share keys. */
static calm_status check_heads(calm_ctx *ctx, const char *path, const calm_config *config)
{
    const calm_block_shape *first[2] = {NULL, NULL};
    for (size_t i = 0; i < config->n_blocks; i++) {
        const calm_block_shape *shape = &config->shapes[i];
        const bool slide = calm_config_slides(config, i);
        if (!first[slide])
            first[slide] = shape;
        if (shape->head_dim != first[slide]->head_dim || shape->n_kv != first[slide]->n_kv)
            return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"per_layer_config\": block %zu has %zu heads of %zu for "
                             "keys, expected %zu of %zu as another block of its type", path, i, shape->n_kv,
                             shape->head_dim, first[slide]->n_kv, first[slide]->head_dim);
        if (config->n_heads % shape->n_kv != 0)
            return calm_fail(ctx, CALM_EFORMAT, "%s: num_attention_heads %zu is not a multiple of the %zu key heads of "
                             "block %zu", path, config->n_heads, shape->n_kv, i);
        if (shape->head_dim % 2 != 0 || config->n_heads * shape->head_dim > (size_t)CALM_SIZE_LIMIT)
            return calm_fail(ctx, CALM_EFORMAT, "%s: block %zu: heads of %zu: expected an even number, and at most "
                             "%lld channels of all %zu heads", path, i, shape->head_dim,
                             (long long)CALM_SIZE_LIMIT, config->n_heads);
    }
    return CALM_OK;
}

calm_status calm_config_block_heads(calm_ctx *ctx, const char *path, const calm_json *root, int64_t usual,
                                    calm_config *config)
{
    const calm_json *entries = calm_json_get(root, "per_layer_config");
    bool k_is_v;
    CALM_TRY(calm_json_need_bool(ctx, path, root, "attention_k_eq_v", &(bool){false}, &k_is_v));
    /* Sliding blocks always have a linear of v. */
    for (size_t i = 0; i < config->n_blocks; i++)
        config->shapes[i].k_is_v = k_is_v && !calm_config_slides(config, i);
    /* The newer spelling takes precedence. */
    if (calm_json_typeof(entries) != CALM_JSON_NULL)
        CALM_TRY(read_entries(ctx, path, entries, config));
    else
        CALM_TRY(read_global(ctx, path, root, usual, k_is_v, config));
    return check_heads(ctx, path, config);
}
