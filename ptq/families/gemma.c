/* Code that the Gemma families share. */
#include "ptq/families/gemma.h"

#include <math.h>
#include <string.h>

/* Reads a soft cap: `usual` when the key is absent, none (0) when it is null. */
static calm_status read_cap(calm_ctx *ctx, const char *path, const calm_json *root, const char *key, double usual,
                            float *out)
{
    /* calm_json_need_number() treats null as absent, so null is handled here. */
    const double fallback = calm_json_get(root, key) ? 0 : usual;
    double value;
    CALM_TRY(calm_json_need_number(ctx, path, root, key, &fallback, 1e-3, 1e6, &value));
    *out = (float)value;
    return CALM_OK;
}

/* Returns sqrt(D). */
static float embedding_scale(const calm_config *config)
{
    /* transformers rounds it to the model's dtype; calm computes in float32 throughout. */
    return (float)sqrt((double)config->hidden);
}

calm_status calm_gemma_read(calm_ctx *ctx, const char *path, const calm_json *root, double attention_cap,
                            double logit_cap, calm_config *config)
{
    double scalar;
    CALM_TRY(calm_json_need_number(ctx, path, root, "query_pre_attn_scalar", &(double){256}, 1e-3, 1e6, &scalar));
    config->attention_scale = (float)(1.0 / sqrt(scalar));
    config->embedding_scale = embedding_scale(config);
    CALM_TRY(read_cap(ctx, path, root, "attn_logit_softcapping", attention_cap, &config->attention_cap));
    CALM_TRY(read_cap(ctx, path, root, "final_logit_softcapping", logit_cap, &config->logit_cap));
    return calm_config_attention_biases(ctx, path, root, config);
}

calm_status calm_gemma3_read(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    /* There are no soft caps unless the config sets them. */
    CALM_TRY(calm_gemma_read(ctx, path, root, 0, 0, config));
    return calm_config_windows_by(ctx, path, root, 4096, "sliding_window_pattern", 6, calm_slides_between, config);
}

/* ---- Gemma 3n and 4 ---- */

calm_status calm_gemma_read_varied(calm_ctx *ctx, const char *path, const calm_json *root, double logit_cap,
                                   calm_config *config)
{
    CALM_TRY(read_cap(ctx, path, root, "final_logit_softcapping", logit_cap, &config->logit_cap));
    CALM_TRY(calm_config_attention_biases(ctx, path, root, config));
    config->embedding_scale = embedding_scale(config);
    /* Norms of q and k replace the scale of scores. */
    config->attention_scale = 1;
    config->value_norm = true;
    return CALM_OK;
}

calm_status calm_gemma_check_causal(calm_ctx *ctx, const char *path, const calm_json *root)
{
    const calm_json *both = calm_json_get(root, "use_bidirectional_attention");
    /* "vision" concerns only images: text stays causal. */
    if (calm_json_typeof(both) != CALM_JSON_NULL && strcmp(calm_json_string(both, ""), "vision") != 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"use_bidirectional_attention\": expected null or \"vision\", "
                         "found \"%s\"", path, calm_json_string(both, "(no text)"));
    return CALM_OK;
}

calm_status calm_gemma_read_inputs(calm_ctx *ctx, const char *path, const calm_json *root, int64_t usual_rows,
                                   size_t least, calm_config *config)
{
    int64_t width;
    /* null is 0; an absent key is the class's default. */
    const int64_t usual = calm_json_get(root, "hidden_size_per_layer_input") ? 0 : 256;
    CALM_TRY(calm_json_need_int(ctx, path, root, "hidden_size_per_layer_input", &usual, 0,
                                CALM_SIZE_LIMIT / (int64_t)config->n_blocks, &width));
    config->per_layer = (size_t)width;
    if (!width)
        return CALM_OK;
    CALM_TRY(calm_config_size(ctx, path, root, "vocab_size_per_layer_input", &usual_rows, &config->per_layer_rows));
    if (config->per_layer_rows < least)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"vocab_size_per_layer_input\": found %zu, expected at least "
                         "%zu (vocab_size)", path, config->per_layer_rows, least);
    return CALM_OK;
}
