/* Code that the Gemma families share. */
#include "ptq/families/gemma.h"

#include <math.h>

const calm_size_keys calm_gemma_sizes = {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                                         "max_position_embeddings", NULL, "hidden_activation", NULL};

calm_status calm_gemma_read_cap(calm_ctx *ctx, const char *path, const calm_json *root, const char *key, double usual,
                                float *out)
{
    /* calm_json_need_number() treats null as absent, so null is handled here. */
    const double fallback = calm_json_get(root, key) ? 0 : usual;
    double value;
    CALM_TRY(calm_json_need_number(ctx, path, root, key, &fallback, 1e-3, 1e6, &value));
    *out = (float)value;
    return CALM_OK;
}

float calm_gemma_embedding_scale(const calm_config *config)
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
    config->embedding_scale = calm_gemma_embedding_scale(config);
    CALM_TRY(calm_gemma_read_cap(ctx, path, root, "attn_logit_softcapping", attention_cap, &config->attention_cap));
    CALM_TRY(calm_gemma_read_cap(ctx, path, root, "final_logit_softcapping", logit_cap, &config->logit_cap));
    return calm_config_attention_biases(ctx, path, root, config);
}

calm_status calm_gemma3_read(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    /* There are no soft caps unless the config sets them. */
    CALM_TRY(calm_gemma_read(ctx, path, root, 0, 0, config));
    return calm_config_windows_by(ctx, path, root, 4096, "sliding_window_pattern", 6, calm_slides_between, config);
}

/* ---- keys and values that blocks share ---- */

/* Returns the last block of a type before block `first`; n_blocks: there is none. */
static size_t last_of_type(const calm_config *config, size_t first, bool slides)
{
    for (size_t i = first; i > 0; i--)
        if ((config->window[i - 1] != 0) == slides)
            return i - 1;
    return config->n_blocks;
}

calm_status calm_gemma_read_sharing(calm_ctx *ctx, const char *path, const calm_json *root, int64_t usual,
                                    calm_config *config)
{
    size_t at[2] = {0, 0};
    int64_t n_shared;
    CALM_TRY(calm_json_need_int(ctx, path, root, "num_kv_shared_layers", &usual, 0, (int64_t)config->n_blocks - 1,
                                &n_shared));
    /* The default of the class, which is not in the file, has not been checked against n_blocks. */
    if (n_shared >= (int64_t)config->n_blocks)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"num_kv_shared_layers\": expected 0 to %zu, found %lld (absent)",
                         path, config->n_blocks - 1, (long long)n_shared);
    /* At most two blocks pass on keys and values: the last of each type before the first block that shares. */
    const size_t first = config->n_blocks - (size_t)n_shared;
    for (size_t i = first; i < config->n_blocks; i++) {
        const bool slides = config->window[i] != 0;
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
    }
    return CALM_OK;
}

/* ---- per-layer inputs ---- */

calm_status calm_gemma_read_inputs(calm_ctx *ctx, const char *path, const calm_json *root, int64_t usual_rows,
                                   calm_config *config)
{
    int64_t width;
    /* null is 0; an absent key is the class's default. */
    const int64_t usual = calm_json_get(root, "hidden_size_per_layer_input") ? 0 : 256;
    CALM_TRY(calm_json_need_int(ctx, path, root, "hidden_size_per_layer_input", &usual, 0,
                                CALM_SIZE_LIMIT / (int64_t)config->n_blocks, &width));
    config->per_layer = (size_t)width;
    return width ? calm_config_size(ctx, path, root, "vocab_size_per_layer_input", &usual_rows,
                                    &config->per_layer_rows)
                 : CALM_OK;
}
