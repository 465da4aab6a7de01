/* What the Gemma families have in common. */
#include "ptq/model/gemma.h"

#include <math.h>

calm_status calm_gemma_read_cap(calm_ctx *ctx, const char *path, const calm_json *root, const char *key, double usual,
                                float *out)
{
    /* calm_json_need_number takes null for absent, so the difference is made here. */
    const double fallback = calm_json_get(root, key) ? 0 : usual;
    double value;
    CALM_TRY(calm_json_need_number(ctx, path, root, key, &fallback, 1e-3, 1e6, &value));
    *out = (float)value;
    return CALM_OK;
}

float calm_gemma_embedding_scale(const calm_config *config)
{
    /* The reference rounds it to the dtype of the model; calm computes in float32 throughout. */
    return (float)sqrt((double)config->hidden);
}

calm_status calm_gemma_read(calm_ctx *ctx, const char *path, const calm_json *root, double attention_cap,
                            double logit_cap, calm_config *config)
{
    double scalar;
    CALM_TRY(calm_json_need_number(ctx, path, root, "query_pre_attn_scalar", &(double){256}, 1e-3, 1e6, &scalar));
    config->attention_scale = (float)(1.0 / sqrt(scalar));
    config->embedding_scale = calm_gemma_embedding_scale(config);
    CALM_TRY(calm_gemma_read_cap(ctx, path, root, "attn_logit_softcapping", attention_cap, &config->attention_cap));
    CALM_TRY(calm_gemma_read_cap(ctx, path, root, "final_logit_softcapping", logit_cap, &config->logit_cap));
    return calm_config_attention_biases(ctx, path, root, config);
}

calm_status calm_gemma3_read(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    int64_t pattern;
    /* Soft caps are off unless the config sets them. */
    CALM_TRY(calm_gemma_read(ctx, path, root, 0, 0, config));
    CALM_TRY(calm_json_need_int(ctx, path, root, "sliding_window_pattern", &(int64_t){6}, 1, 4096, &pattern));
    return calm_config_windows(ctx, path, root, 4096, calm_slides_between, pattern, config);
}
