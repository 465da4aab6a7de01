/* Reads latent attention (latent.h), and the other keys that its families share, from config.json. */
#include <math.h>

#include "ptq/arch/arch.h"
#include "ptq/arch/kind.h"

/* Reads a width. */
static calm_status need_size(calm_ctx *ctx, const char *path, const calm_json *root, const char *key, size_t *out)
{
    int64_t value;
    CALM_TRY(calm_json_need_int(ctx, path, root, key, NULL, 1, CALM_SIZE_LIMIT, &value));
    *out = (size_t)value;
    return CALM_OK;
}

/* Reads the rank of queries, or null where queries come from one linear.  The key must be present. */
static calm_status read_q_rank(calm_ctx *ctx, const char *path, const calm_json *root, size_t *out)
{
    const calm_json *value = calm_json_get(root, "q_lora_rank");
    *out = 0;
    if (!value)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"q_lora_rank\": expected a number or null, found nothing", path);
    return calm_json_typeof(value) == CALM_JSON_NULL ? CALM_OK : need_size(ctx, path, root, "q_lora_rank", out);
}

/* Fails with CALM_EFORMAT unless the key is absent, null or this number. */
static calm_status need_equal(calm_ctx *ctx, const char *path, const calm_json *root, const char *key, size_t expected,
                              const char *what)
{
    const int64_t usual = (int64_t)expected;
    int64_t found;
    /* transformers also writes keys whose values follow from others. */
    CALM_TRY(calm_json_need_int(ctx, path, root, key, &usual, 0, CALM_SIZE_LIMIT, &found));
    if (found != usual)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"%s\": expected %zu (%s), found %lld", path, key, expected, what,
                         (long long)found);
    return CALM_OK;
}

/* Checks num_key_value_heads: calm does not repeat keys, and transformers does so n_heads / num_key_value_heads times,
 * rounded down. */
static calm_status check_kv_heads(calm_ctx *ctx, const char *path, const calm_json *root, size_t n_heads)
{
    const int64_t usual = (int64_t)n_heads;
    int64_t found;
    CALM_TRY(calm_json_need_int(ctx, path, root, "num_key_value_heads", &usual, 1, CALM_SIZE_LIMIT, &found));
    return usual / found == 1 ? CALM_OK
                              : need_equal(ctx, path, root, "num_key_value_heads", n_heads, "num_attention_heads");
}

calm_status calm_config_latent_heads(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    calm_latent_config *latent = &config->latent;
    CALM_TRY(read_q_rank(ctx, path, root, &latent->q_rank));
    CALM_TRY(need_size(ctx, path, root, "kv_lora_rank", &latent->kv_rank));
    CALM_TRY(need_size(ctx, path, root, "qk_nope_head_dim", &latent->nope));
    CALM_TRY(need_size(ctx, path, root, "qk_rope_head_dim", &latent->rope));
    CALM_TRY(need_size(ctx, path, root, "v_head_dim", &latent->value));
    /* Each head has its own key, in addition to the shared part. */
    config->n_kv = config->n_heads;
    config->head_dim = latent->nope + latent->rope;
    CALM_TRY(check_kv_heads(ctx, path, root, config->n_heads));
    /* transformers reads the width of the rotary embedding from this key. */
    CALM_TRY(need_equal(ctx, path, root, "head_dim", latent->rope, "qk_rope_head_dim"));
    /* All readers compute "qk_head_dim" as the sum of two other keys, and ignore its value. */
    config->attention_scale = (float)(1.0 / sqrt((double)config->head_dim));
    /* Each factor is below 2^24; the width of all heads has the limit of other dimensions. */
    const size_t widest = calm_size_max(config->head_dim, latent->nope + latent->value);
    if (widest > (size_t)CALM_SIZE_LIMIT / config->n_heads)
        return calm_fail(ctx, CALM_EFORMAT, "%s: %zu heads of %zu: expected at most %lld in all", path, config->n_heads,
                         widest, (long long)CALM_SIZE_LIMIT);
    return CALM_OK;
}

calm_status calm_config_latent(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    calm_rope_config *rope = &config->rope[CALM_ROPE_GLOBAL];
    bool neighbours, bias;
    /* DeepSeek's published code multiplies scores by the square of the factor that transformers applies to cos and sin
     * elsewhere. */
    config->attention_scale = (float)(rope->m_all * rope->m_all / sqrt((double)config->head_dim));
    /* The order of rotated channels, in q's rows and in the shared key's. */
    CALM_TRY(calm_config_switch(ctx, path, root, "rope_interleave", true, &neighbours));
    rope->neighbours = neighbours;
    CALM_TRY(calm_json_need_bool(ctx, path, root, "attention_bias", &(bool){false}, &bias));
    /* q_b and kv_b never have biases, nor does q where it is one linear. */
    config->bias[CALM_ROLE_Q_A] = config->bias[CALM_ROLE_KV_A] = config->bias[CALM_ROLE_O] = bias;
    for (size_t i = 0; i < config->n_blocks; i++)
        config->shapes[i].kind[CALM_SUBLAYER_ATTENTION] = &calm_kind_mla;
    return CALM_OK;
}
