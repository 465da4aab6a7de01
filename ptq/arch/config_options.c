/* Reads options of config.json that several families have. */
#include <stdlib.h>
#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/arch/kind.h"

calm_status calm_config_one_per_block(calm_ctx *ctx, const char *path, const char *key, const calm_json *list,
                                      const calm_config *config)
{
    if (calm_json_size(list) != config->n_blocks)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"%s\": %zu entries, expected %zu (num_hidden_layers)", path, key,
                         calm_json_size(list), config->n_blocks);
    return CALM_OK;
}

calm_status calm_config_new_no_rope(calm_ctx *ctx, calm_config *config)
{
    return CALM_NEW(ctx, ctx->out, config->no_rope, config->n_blocks);
}

/* Reads a list with 1 for a rotated block and 0 for any other. */
static calm_status read_rotated(calm_ctx *ctx, const char *path, const calm_json *list, calm_config *config)
{
    CALM_TRY(calm_json_expect(ctx, list, CALM_JSON_ARRAY, "%s: \"no_rope_layers\"", path));
    if (calm_json_size(list) < config->n_blocks)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"no_rope_layers\": %zu entries, expected %zu (num_hidden_layers)",
                         path, calm_json_size(list), config->n_blocks);
    for (size_t i = 0; i < config->n_blocks; i++) {
        const int64_t rotated = calm_json_int(calm_json_at(list, i), -1);
        if (rotated != 0 && rotated != 1)
            return calm_fail(ctx, CALM_EFORMAT, "%s: \"no_rope_layers\"[%zu]: expected 0 or 1", path, i);
        config->no_rope[i] = !rotated;
    }
    return CALM_OK;
}

calm_status calm_config_no_rope(calm_ctx *ctx, const char *path, const calm_json *root, bool empty,
                                calm_config *config)
{
    const calm_json *list = calm_json_get(root, "no_rope_layers");
    const calm_json_type type = calm_json_typeof(list);    /* `empty`: an empty list counts as absent */
    int64_t interval;
    CALM_TRY(calm_config_new_no_rope(ctx, config));
    CALM_TRY(calm_json_need_int(ctx, path, root, "no_rope_layer_interval", &(int64_t){4}, 1, 4096, &interval));
    if (type != CALM_JSON_NULL && !(empty && type == CALM_JSON_ARRAY && calm_json_size(list) == 0))
        return read_rotated(ctx, path, list, config);
    /* Without a list it is the last block of every interval. */
    for (size_t i = 0; i < config->n_blocks; i++)
        config->no_rope[i] = (i + 1) % (size_t)interval == 0;
    return CALM_OK;
}

calm_status calm_config_position_type(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    const char *type;
    CALM_TRY(calm_json_need_string(ctx, path, root, "position_embedding_type", "nope", &type));
    if (strcmp(type, "rope") == 0)
        return CALM_OK;
    if (strcmp(type, "nope") != 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"position_embedding_type\": expected null, \"nope\" or "
                         "\"rope\", found \"%s\"", path, type);
    CALM_TRY(calm_config_new_no_rope(ctx, config));
    memset(config->no_rope, true, config->n_blocks * sizeof *config->no_rope);
    return CALM_OK;
}

calm_status calm_config_switch(calm_ctx *ctx, const char *path, const calm_json *root, const char *key, bool usual,
                               bool *out)
{
    const calm_json *value = calm_json_get(root, key);
    const bool null = value && calm_json_typeof(value) == CALM_JSON_NULL;
    return calm_json_need_bool(ctx, path, root, key, &(bool){usual && !null}, out);
}

/* ---- biases ---- */

/* Sets the biases of the usual linears of one sublayer, attention or MLP. */
static void set_biases(calm_config *config, calm_sublayer sublayer, bool bias)
{
    for (calm_role role = 0; role < CALM_N_ROLES; role++)
        if (calm_slot_has_job(config, sublayer, calm_role_job(role)))
            config->bias[role] = bias;
}

calm_status calm_config_attention_biases(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    bool bias;
    /* Also o: in transformers all four have one switch. */
    CALM_TRY(calm_json_need_bool(ctx, path, root, "attention_bias", &(bool){false}, &bias));
    set_biases(config, CALM_SUBLAYER_ATTENTION, bias);
    return CALM_OK;
}

calm_status calm_config_mlp_biases(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    bool bias;
    /* One switch for all three, like in transformers. */
    CALM_TRY(calm_json_need_bool(ctx, path, root, "mlp_bias", &(bool){false}, &bias));
    set_biases(config, CALM_SUBLAYER_MLP, bias);
    return CALM_OK;
}

calm_status calm_config_use_bias(calm_ctx *ctx, const char *path, const calm_json *root, bool usual,
                                 calm_config *config)
{
    bool bias;
    CALM_TRY(calm_config_switch(ctx, path, root, "use_bias", usual, &bias));
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
        set_biases(config, s, bias);
    return CALM_OK;
}

calm_status calm_config_head_bias(calm_ctx *ctx, const char *path, const calm_json *root, const char *key, bool usual,
                                  calm_config *config)
{
    CALM_TRY(calm_config_switch(ctx, path, root, key, usual, &config->head_bias));
    /* The class may be one without a head. */
    config->head_bias &= config->arch->names->head != NULL;
    return CALM_OK;
}

/* ---- multipliers ---- */

calm_status calm_config_multipliers(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    /* logits_scaling divides logits, so its inverse is the factor. */
    static const char *const keys[] = {"embedding_multiplier", "attention_multiplier", "residual_multiplier",
                                       "logits_scaling"};
    double value[4];
    for (size_t i = 0; i < 4; i++)
        CALM_TRY(calm_json_need_number(ctx, path, root, keys[i], &(double){1}, 1e-6, 1e6, &value[i]));
    config->embedding_scale = (float)value[0];
    config->attention_scale = (float)value[1];
    config->residual_scale = (float)value[2];
    config->logit_scale = (float)(1 / value[3]);
    return CALM_OK;
}

/* ---- settings of published files that the library has no choice for ---- */

static bool is_value(const calm_json *found, const char *expected)
{
    switch (calm_json_typeof(found)) {
    case CALM_JSON_NULL:
        return true;
    case CALM_JSON_BOOL:
        return strcmp(expected, calm_json_bool(found, false) ? "true" : "false") == 0;
    case CALM_JSON_STRING:
        return strcmp(expected, calm_json_string(found, "")) == 0;
    case CALM_JSON_INT:
    case CALM_JSON_REAL:
        return calm_json_number(found, 0) == strtod(expected, NULL);
    default:
        return false;
    }
}

calm_status calm_config_fixed(calm_ctx *ctx, const char *path, const calm_json *root, const char *pairs)
{
    CALM_SCOPED_SCRATCH(ctx);
    char *rest, *pair;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &rest, "%s", pairs ? pairs : ""));
    while ((pair = strtok_r(rest, " ", &rest))) {
        char *expected = strchr(pair, '=');
        *expected++ = '\0';
        const calm_json *value = calm_json_get(root, pair);
        const char *text = NULL;
        if (is_value(value, expected))
            continue;
        CALM_TRY(calm_json_text(ctx, value, &text));
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"%s\": found %s, expected %s", path, pair, text, expected);
    }
    return CALM_OK;
}

/* Is it a key of such pairs? */
static bool is_fixed(const char *pairs, const char *key)
{
    const size_t n = strlen(key);
    const char *at = pairs;
    /* A pair begins the text or follows a space. */
    for (; at && *at; at += strcspn(at, " "), at += *at == ' ')
        if (strncmp(at, key, n) == 0 && at[n] == '=')
            return true;
    return false;
}

bool calm_config_own_key(const calm_arch *arch, const char *key)
{
    return (arch->keys && calm_text_listed(arch->keys, ' ', key)) || is_fixed(arch->fixed, key);
}
