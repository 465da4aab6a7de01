/* Reads widths of MLPs, and the sparsity of their gates, from config.json. */
#include <math.h>

#include "ptq/arch/config.h"

/* Checks that a key has a list with an entry for each block. */
static calm_status need_list(calm_ctx *ctx, const char *path, const calm_json *root, const char *key,
                             const calm_config *config, const calm_json **list)
{
    *list = calm_json_get(root, key);
    CALM_TRY(calm_json_expect(ctx, *list, CALM_JSON_ARRAY, "%s: \"%s\"", path, key));
    return calm_config_one_per_block(ctx, path, key, *list, config);
}

calm_status calm_config_inner_list(calm_ctx *ctx, const char *path, const calm_json *root, const char *key,
                                   calm_config *config)
{
    const calm_json *list;
    if (calm_json_typeof(calm_json_get(root, key)) != CALM_JSON_ARRAY)
        return CALM_OK;
    CALM_TRY(need_list(ctx, path, root, key, config, &list));
    for (size_t i = 0; i < config->n_blocks; i++) {
        const calm_json *entry = calm_json_at(list, i);
        const double width = calm_json_number(entry, 0);
        if (calm_json_typeof(entry) != CALM_JSON_INT || !(width >= 1 && width <= (double)CALM_SIZE_LIMIT))
            return calm_fail(ctx, CALM_EFORMAT, "%s: \"%s\"[%zu]: expected a whole number from 1 to %lld, found %g",
                             path, key, i, (long long)CALM_SIZE_LIMIT, width);
        config->shapes[i].inner = (size_t)width;
        /* The model's own width is the largest. */
        config->inner = calm_size_max(config->inner, (size_t)width);
    }
    return CALM_OK;
}

calm_status calm_config_gate_sparsity(calm_ctx *ctx, const char *path, const calm_json *root, size_t n, float usual,
                                      calm_config *config)
{
    static const char key[] = "activation_sparsity_pattern";
    const calm_json *list;
    if (calm_json_typeof(calm_json_get(root, key)) == CALM_JSON_NULL) {
        for (size_t i = 0; config->n_blocks > n && i < n; i++)
            config->shapes[i].gate_sparsity = usual;
        return CALM_OK;
    }
    CALM_TRY(need_list(ctx, path, root, key, config, &list));
    for (size_t i = 0; i < config->n_blocks; i++) {
        const float share = (float)calm_json_number(calm_json_at(list, i), -1);
        /* Checked after rounding to float32: the quantile of 1 would be infinite. */
        if (!(share >= 0 && share < 1))
            return calm_fail(ctx, CALM_EFORMAT, "%s: \"%s\"[%zu]: expected a number from 0 to less than 1, found %g",
                             path, key, i, (double)share);
        config->shapes[i].gate_sparsity = share;
    }
    return CALM_OK;
}

calm_status calm_config_adjusted_inner(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    const bool plain = calm_json_get(root, "block_ffn_dim_multiplier") &&
                       calm_json_typeof(calm_json_get(root, "block_ffn_dim_multiplier")) == CALM_JSON_NULL;
    size_t step;
    bool adjust;
    double factor;
    CALM_TRY(calm_config_switch(ctx, path, root, "block_auto_adjust_ff_dim", true, &adjust));
    CALM_TRY(calm_config_size(ctx, path, root, "block_multiple_of", &(int64_t){256}, &step));
    CALM_TRY(calm_json_need_number(ctx, path, root, "block_ffn_dim_multiplier", &(double){1}, 1e-3, 1e3, &factor));
    if (!adjust)
        return CALM_OK;
    config->inner = 2 * config->inner / 3;
    /* null switches off both the factor and the rounding. */
    if (!plain)
        config->inner = ((size_t)floor(factor * (double)config->inner) + step - 1) / step * step;
    if (config->inner == 0 || config->inner > (size_t)CALM_SIZE_LIMIT)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"block_auto_adjust_ff_dim\": the MLP becomes %zu wide, expected 1 to "
                         "%lld", path, config->inner, (long long)CALM_SIZE_LIMIT);
    return CALM_OK;
}
