/* config.json: which block mixes tokens how, and the sizes of what is not attention. */
#include "ptq/model/mixers.h"

#include <string.h>

#include "ptq/base/scope.h"

extern const calm_kind calm_kind_delta, calm_kind_conv;

/* Make `kind` the mixer of the blocks that "layer_types" calls `word`; "full_attention" has attention.  Without the
 * list those of which `otherwise` [n_blocks] is true; NULL: the list must be there.  CALM_EFORMAT: it has not an entry
 * for each block; CALM_EUNSUPPORTED: an entry that is neither. */
static calm_status read_mixers(calm_ctx *ctx, const char *path, const calm_json *root, const char *word,
                               const calm_kind *kind, const bool *otherwise, calm_config *config)
{
    const calm_json *types = calm_json_get(root, "layer_types");
    const bool listed = calm_json_typeof(types) != CALM_JSON_NULL;
    if (listed || !otherwise)
        CALM_TRY(calm_json_expect(ctx, types, CALM_JSON_ARRAY, "%s: \"layer_types\"", path));
    if (listed && calm_json_size(types) != config->n_blocks)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"layer_types\": %zu entries, expected %zu (num_hidden_layers)", path,
                         calm_json_size(types), config->n_blocks);
    CALM_TRY(calm_config_vary(ctx, config));
    for (size_t i = 0; i < config->n_blocks; i++) {
        const char *type = listed ? calm_json_string(calm_json_at(types, i), "") : otherwise[i] ? word : "";
        if (strcmp(type, word) == 0)
            config->shapes[i].kind[CALM_SUBLAYER_ATTENTION] = kind;
        else if (listed && strcmp(type, "full_attention") != 0)
            return calm_fail(ctx, CALM_EUNSUPPORTED,
                             "%s: \"layer_types\"[%zu]: expected \"full_attention\" or \"%s\", found \"%s\"", path, i,
                             word, type);
    }
    return CALM_OK;
}

/* Numbers and widths of heads; the defaults are those of the published models. */
static calm_status read_delta_sizes(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    calm_delta_shape *shape = &config->delta;
    CALM_TRY(calm_config_size(ctx, path, root, "linear_conv_kernel_dim", &(int64_t){4}, &config->conv_width));
    CALM_TRY(calm_config_size(ctx, path, root, "linear_key_head_dim", &(int64_t){128}, &shape->key_dim));
    CALM_TRY(calm_config_size(ctx, path, root, "linear_value_head_dim", &(int64_t){128}, &shape->value_dim));
    CALM_TRY(calm_config_size(ctx, path, root, "linear_num_key_heads", &(int64_t){16}, &shape->n_key_heads));
    CALM_TRY(calm_config_size(ctx, path, root, "linear_num_value_heads", &(int64_t){32}, &shape->n_value_heads));
    if (shape->n_value_heads % shape->n_key_heads != 0)
        return calm_fail(ctx, CALM_EFORMAT,
                         "%s: \"linear_num_value_heads\": expected a multiple of linear_num_key_heads (%zu), found %zu",
                         path, shape->n_key_heads, shape->n_value_heads);
    /* Each factor is below 2^24, so that neither product overflows; their sum is a dimension, and has its limit. */
    const size_t key = shape->n_key_heads * shape->key_dim, value = shape->n_value_heads * shape->value_dim;
    if (2 * key + 2 * value > (size_t)CALM_SIZE_LIMIT)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"linear_num_key_heads\" and its like: q, k, v and z have %zu rows, "
                         "expected at most %lld", path, 2 * key + 2 * value, (long long)CALM_SIZE_LIMIT);
    return CALM_OK;
}

calm_status calm_config_delta(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    /* Published files have the key, transformers' attention has no choice. */
    static const calm_fixed_key fixed[] = {{"attn_output_gate", "true"}};
    int64_t interval;
    bool *linear;
    CALM_TRY(calm_config_fixed(ctx, path, root, fixed, sizeof fixed / sizeof *fixed));
    CALM_TRY(calm_config_attention_biases(ctx, path, root, config));
    CALM_TRY(read_delta_sizes(ctx, path, root, config));
    config->output_gate = true;
    CALM_TRY(calm_json_need_int(ctx, path, root, "full_attention_interval", &(int64_t){4}, 1, 1 << 20, &interval));
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, linear, config->n_blocks));
    for (size_t i = 0; i < config->n_blocks; i++)
        linear[i] = (i + 1) % (size_t)interval != 0;
    return read_mixers(ctx, path, root, "linear_attention", &calm_kind_delta, linear, config);
}

calm_status calm_config_conv(calm_ctx *ctx, const char *path, const calm_json *root, const bool *otherwise,
                             calm_config *config)
{
    bool bias;
    /* Published files have the first name, and transformers takes it before the second. */
    CALM_TRY(calm_json_need_bool(ctx, path, root, "tie_embedding", &config->tied, &config->tied));
    /* Its code has no choice, and the files no key. */
    config->activation = CALM_ACTIVATION_SILU;
    CALM_TRY(calm_config_size(ctx, path, root, "conv_L_cache", &(int64_t){3}, &config->conv_width));
    CALM_TRY(calm_json_need_bool(ctx, path, root, "conv_bias", &(bool){false}, &bias));
    config->bias[CALM_ROLE_CONV_IN] = config->bias[CALM_ROLE_CONV_OUT] = bias;
    return read_mixers(ctx, path, root, "conv", &calm_kind_conv, otherwise, config);
}
