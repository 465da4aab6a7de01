/* Reads position-dependent scales of queries (calm_query_scale_config) from config.json. */
#include "ptq/arch/config.h"

calm_status calm_config_query_tuning(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    const calm_json *tuned = calm_json_get(root, "attn_temperature_tuning");
    /* The first published files have a number instead of a boolean. */
    bool on = calm_json_int(tuned, 1) != 0;
    int64_t length;
    double beta;
    if (calm_json_typeof(tuned) != CALM_JSON_INT)
        CALM_TRY(calm_config_switch(ctx, path, root, "attn_temperature_tuning", true, &on));
    CALM_TRY(calm_json_need_int(ctx, path, root, "floor_scale", &(int64_t){8192}, 1, 1 << 30, &length));
    CALM_TRY(calm_json_need_number(ctx, path, root, "attn_scale", &(double){0.1}, 0, 1e3, &beta));
    config->query_growth =
        (calm_query_scale_config){.beta = on ? (float)beta : 0, .length = (double)length, .from_one = true,
                                  .unrotated = true};
    return CALM_OK;
}

calm_status calm_config_query_growth(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    const calm_json *described;
    double beta, original;
    CALM_TRY(calm_config_rope_object(ctx, path, root, &described));
    CALM_TRY(calm_json_need_number(ctx, path, described, "llama_4_scaling_beta", NULL, 0, 1e3, &beta));
    CALM_TRY(calm_json_need_number(ctx, path, described, "original_max_position_embeddings", NULL, 1, 1e9, &original));
    config->query_growth = (calm_query_scale_config){.beta = (float)beta, .length = original};
    return CALM_OK;
}
