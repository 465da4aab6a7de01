/* Reads from config.json which mixer each block has, and the sizes of mixers other than attention. */
#include "ptq/families/mixers.h"

#include <math.h>
#include <string.h>

#include "ptq/base/scope.h"

extern const calm_kind calm_kind_attention, calm_kind_delta, calm_kind_conv, calm_kind_mamba;

/* Words of "layer_types" for the family's own mixer and for attention, with those of older files (NULL: there is no
 * other word). */
typedef struct mixer_words {
    const char *own, *old_own, *old_attention;
} mixer_words;

static bool is_word(const char *found, const char *word, const char *old)
{
    return strcmp(found, word) == 0 || (old && strcmp(found, old) == 0);
}

/* Makes `kind` the mixer of the blocks to which "layer_types" gives its words; "full_attention" is attention.  Without
 * the list `otherwise` [n_blocks] is true for them; NULL: the list must be present.  CALM_EFORMAT: it does not have an
 * entry for each block; CALM_EUNSUPPORTED: another word. */
static calm_status read_mixers(calm_ctx *ctx, const char *path, const calm_json *root, const mixer_words *words,
                               const calm_kind *kind, const bool *otherwise, calm_config *config)
{
    const calm_json *types = calm_json_get(root, "layer_types");
    const bool listed = calm_json_typeof(types) != CALM_JSON_NULL;
    if (listed || !otherwise)
        CALM_TRY(calm_json_expect(ctx, types, CALM_JSON_ARRAY, "%s: \"layer_types\"", path));
    if (listed)
        CALM_TRY(calm_config_one_per_block(ctx, path, "layer_types", types, config));
    CALM_TRY(calm_config_new_shapes(ctx, config));
    for (size_t i = 0; i < config->n_blocks; i++) {
        const char *type = listed ? calm_json_string(calm_json_at(types, i), "") : otherwise[i] ? words->own : "";
        if (is_word(type, words->own, words->old_own))
            config->shapes[i].kind[CALM_SUBLAYER_ATTENTION] = kind;
        else if (listed && !is_word(type, "full_attention", words->old_attention))
            return calm_fail(ctx, CALM_EUNSUPPORTED,
                             "%s: \"layer_types\"[%zu]: expected \"full_attention\" or \"%s\", found \"%s\"", path, i,
                             words->own, type);
    }
    return CALM_OK;
}

/* Reads numbers and widths of heads; the defaults are those of the published models. */
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
    /* Each factor is below 2^24, so no product overflows; their sum is a dimension, with its limit. */
    const size_t key = shape->n_key_heads * shape->key_dim, value = shape->n_value_heads * shape->value_dim;
    if (2 * key + 2 * value > (size_t)CALM_SIZE_LIMIT)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"linear_num_key_heads\" and its like: q, k, v and z have %zu rows, "
                         "expected at most %lld", path, 2 * key + 2 * value, (long long)CALM_SIZE_LIMIT);
    return CALM_OK;
}

calm_status calm_config_delta(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    int64_t interval;
    bool *linear;
    CALM_TRY(calm_config_attention_biases(ctx, path, root, config));
    CALM_TRY(read_delta_sizes(ctx, path, root, config));
    config->output_gate = true;
    CALM_TRY(calm_json_need_int(ctx, path, root, "full_attention_interval", &(int64_t){4}, 1, 1 << 20, &interval));
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, linear, config->n_blocks));
    for (size_t i = 0; i < config->n_blocks; i++)
        linear[i] = (i + 1) % (size_t)interval != 0;
    return read_mixers(ctx, path, root, &(mixer_words){.own = "linear_attention"}, &calm_kind_delta, linear, config);
}

/* Fills conv [n_blocks]: a list of the other blocks has the key `attention`; without it there is no convolution. */
static calm_status read_others(calm_ctx *ctx, const char *path, const calm_json *root, const char *attention,
                               const calm_config *config, bool *conv)
{
    const calm_json *list = calm_json_get(root, attention);
    const bool listed = calm_json_typeof(list) != CALM_JSON_NULL;
    if (listed)
        CALM_TRY(calm_json_expect(ctx, list, CALM_JSON_ARRAY, "%s: \"%s\"", path, attention));
    for (size_t i = 0; i < config->n_blocks; i++)
        conv[i] = listed;
    for (size_t i = 0; i < calm_json_size(list); i++) {
        const int64_t block = calm_json_int(calm_json_at(list, i), -1);
        if (block < 0 || block >= (int64_t)config->n_blocks)
            return calm_fail(ctx, CALM_EFORMAT, "%s: \"%s\"[%zu]: expected the number of a block, below %zu", path,
                             attention, i, config->n_blocks);
        conv[block] = false;
    }
    return CALM_OK;
}

calm_status calm_config_conv(calm_ctx *ctx, const char *path, const calm_json *root, const char *attention,
                             calm_config *config)
{
    bool bias, *conv = NULL;
    CALM_SCOPED_SCRATCH(ctx);
    if (attention) {
        CALM_TRY(CALM_NEW(ctx, ctx->scratch, conv, config->n_blocks));
        CALM_TRY(read_others(ctx, path, root, attention, config, conv));
    }
    /* Published files have the first name, which transformers prefers to the second. */
    CALM_TRY(calm_json_need_bool(ctx, path, root, "tie_embedding", &config->tied, &config->tied));
    /* transformers implements one function, and files have no key. */
    config->activation = CALM_ACTIVATION_SILU;
    CALM_TRY(calm_config_size(ctx, path, root, "conv_L_cache", &(int64_t){3}, &config->conv_width));
    CALM_TRY(calm_json_need_bool(ctx, path, root, "conv_bias", &(bool){false}, &bias));
    config->bias[CALM_ROLE_CONV_IN] = config->bias[CALM_ROLE_CONV_OUT] = bias;
    return read_mixers(ctx, path, root, &(mixer_words){.own = "conv"}, &calm_kind_conv, conv, config);
}

/* ---- Mamba-2 ---- */

/* Checks the widths, which are dimensions; each factor is below 2^24, so no product overflows. */
static calm_status check_widths(calm_ctx *ctx, const char *path, const calm_mamba_keys *keys,
                                const calm_mamba_shape *shape)
{
    const size_t value = shape->n_heads * shape->head_dim, group = shape->n_groups * shape->state_dim;
    if (shape->n_heads % shape->n_groups != 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"%s\": expected a multiple of %s (%zu), found %zu", path, keys->heads,
                         keys->groups, shape->n_groups, shape->n_heads);
    if (2 * value + 2 * group + shape->n_heads > (size_t)CALM_SIZE_LIMIT)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"%s\" and its like: z, x, B, C and dt have %zu rows, expected at "
                         "most %lld", path, keys->heads, 2 * value + 2 * group + shape->n_heads,
                         (long long)CALM_SIZE_LIMIT);
    return CALM_OK;
}

/* Computes the width of heads from the expanded width; "auto" is read like an absent key. */
static calm_status expand_heads(calm_ctx *ctx, const char *path, const calm_json *root, const calm_config *config,
                                calm_mamba_keys *keys)
{
    const char *word = calm_json_string(calm_json_get(root, keys->head_dim), "");
    size_t expand, heads;
    CALM_TRY(calm_config_size(ctx, path, root, keys->expand, &(int64_t){2}, &expand));
    CALM_TRY(calm_config_size(ctx, path, root, keys->heads, &(int64_t){128}, &heads));
    if (expand * config->hidden % heads != 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"%s\": expected a divisor of %s hidden_size (%zu), found %zu", path,
                         keys->heads, keys->expand, expand * config->hidden, heads);
    keys->usual_head_dim = (int64_t)(expand * config->hidden / heads);
    if (strcmp(word, "auto") == 0)
        keys->head_dim = "";
    return CALM_OK;
}

/* Reads the numbers and widths of heads and groups. */
static calm_status read_shape(calm_ctx *ctx, const char *path, const calm_json *root, const calm_mamba_keys *keys,
                              calm_config *config)
{
    calm_mamba_shape *shape = &config->mamba.shape;
    bool bias;
    CALM_TRY(calm_config_size(ctx, path, root, keys->heads, &(int64_t){128}, &shape->n_heads));
    CALM_TRY(calm_config_size(ctx, path, root, keys->head_dim, &keys->usual_head_dim, &shape->head_dim));
    CALM_TRY(calm_config_size(ctx, path, root, keys->groups, &keys->usual_groups, &shape->n_groups));
    CALM_TRY(calm_config_size(ctx, path, root, keys->state, &keys->usual_state, &shape->state_dim));
    CALM_TRY(calm_config_size(ctx, path, root, keys->taps, &(int64_t){4}, &config->conv_width));
    CALM_TRY(calm_config_switch(ctx, path, root, keys->conv_bias, true, &config->mamba.conv_bias));
    CALM_TRY(calm_json_need_bool(ctx, path, root, keys->bias, &(bool){false}, &bias));
    config->bias[CALM_ROLE_MAMBA_IN] = config->bias[CALM_ROLE_MAMBA_OUT] = bias;
    CALM_TRY(check_widths(ctx, path, keys, shape));
    if (keys->expand && shape->head_dim != (size_t)keys->usual_head_dim)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"%s\": expected %s hidden_size / %s (%lld), found %zu", path,
                         keys->head_dim, keys->expand, keys->heads, (long long)keys->usual_head_dim, shape->head_dim);
    return CALM_OK;
}

/* Returns a number, which transformers may write as an infinite one. */
static double limit_of(const calm_json *value)
{
    const char *text = calm_json_string(calm_json_get(value, "__float__"), "");
    return strcmp(text, "Infinity") == 0 ? (double)INFINITY : calm_json_number(value, (double)NAN);
}

/* Reads the range of time steps. */
static calm_status read_step_limits(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    const calm_json *list = calm_json_get(root, "time_step_limit");
    if (calm_json_typeof(list) == CALM_JSON_NULL)
        return CALM_OK;
    const double least = limit_of(calm_json_at(list, 0)), most = limit_of(calm_json_at(list, 1));
    if (calm_json_typeof(list) != CALM_JSON_ARRAY || calm_json_size(list) != 2 || !(least >= 0 && least <= most))
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"time_step_limit\": expected two numbers, the first at least 0 and "
                         "the second not below it", path);
    config->mamba.limits = (calm_mamba_limits){(float)least, (float)most};
    return CALM_OK;
}

calm_status calm_config_mamba_sizes(calm_ctx *ctx, const char *path, const calm_json *root,
                                    const calm_mamba_keys *keys, calm_config *config)
{
    calm_mamba_keys own = *keys;
    double least;
    if (keys->expand)
        CALM_TRY(expand_heads(ctx, path, root, config, &own));
    CALM_TRY(read_shape(ctx, path, root, &own, config));
    config->mamba.limits = (calm_mamba_limits){0, INFINITY};
    config->mamba.activation = config->activation;
    if (!keys->least_step) {
        CALM_TRY(read_step_limits(ctx, path, root, config));
    } else {
        CALM_TRY(calm_json_need_number(ctx, path, root, keys->least_step, &(double){0.001}, 0, 1e6, &least));
        config->mamba.limits.least = (float)least;
    }
    return keys->activation
               ? calm_config_activation(ctx, path, root, keys->activation, "silu", &config->mamba.activation)
               : CALM_OK;
}

calm_status calm_config_mamba(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    const mixer_words words = {"linear_attention", "mamba", "attention"};
    bool *all;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, all, config->n_blocks));
    /* Without the list all blocks have Mamba-2. */
    for (size_t i = 0; i < config->n_blocks; i++)
        all[i] = true;
    return read_mixers(ctx, path, root, &words, &calm_kind_mamba, all, config);
}

/* ---- blocks of one sublayer ---- */

/* The sublayer of a block, by its words in the list and by its letter. */
static const struct single {
    char letter;
    mixer_words words;    /* `own` and `old_own` */
    const calm_kind *mixer;
    bool mlp, sparse;
} singles[] = {{'M', {.own = "linear_attention", .old_own = "mamba"}, &calm_kind_mamba, false, false},
               {'*', {.own = "full_attention", .old_own = "attention"}, &calm_kind_attention, false, false},
               {'-', {.own = "mlp"}, NULL, true, false},
               {'E', {.own = "moe"}, NULL, true, true}};

/* Finds the sublayer of block i in the list or the pattern; NULL: unknown. */
static const struct single *find_single(const calm_json *list, const char *pattern, size_t i)
{
    const char *type = calm_json_string(calm_json_at(list, i), "");
    for (size_t k = 0; k < sizeof singles / sizeof *singles; k++)
        if (list ? is_word(type, singles[k].words.own, singles[k].words.old_own) : pattern[i] == singles[k].letter)
            return &singles[k];
    return NULL;
}

/* Sets the sublayer of each block, and moe.sparse. */
static calm_status read_singles(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    const calm_json *value = calm_json_get(root, CALM_SINGLE_LIST);
    const calm_json *list = calm_json_typeof(value) == CALM_JSON_NULL ? NULL : value;
    const char *pattern = calm_json_string(calm_json_get(root, CALM_SINGLE_WORD), "");
    if (list || !pattern[0])
        CALM_TRY(calm_json_expect(ctx, list, CALM_JSON_ARRAY, "%s: \"" CALM_SINGLE_LIST "\"", path));
    /* There is an entry for each block (calm_size_keys). */
    for (size_t i = 0; i < config->n_blocks; i++) {
        const struct single *found = find_single(list, pattern, i);
        if (!found)
            return list ? calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"" CALM_SINGLE_LIST "\"[%zu]: expected "
                                    "\"linear_attention\", \"full_attention\", \"mlp\" or \"moe\", found \"%s\"", path,
                                    i, calm_json_string(calm_json_at(list, i), ""))
                        : calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"" CALM_SINGLE_WORD "\": expected the letters "
                                    "M * - E, found '%c' for block %zu", path, pattern[i], i);
        config->shapes[i].kind[CALM_SUBLAYER_ATTENTION] = found->mixer;
        if (!found->mlp)
            config->shapes[i].kind[CALM_SUBLAYER_MLP] = NULL;
        config->moe.sparse[i] = found->sparse;
    }
    return CALM_OK;
}

calm_status calm_config_single(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    static const calm_grouped_defaults defaults = {1, 1, 1, 1, 1};
    CALM_TRY(read_singles(ctx, path, root, config));
    if (!calm_config_is_mixture(config))
        return CALM_OK;
    CALM_TRY(calm_config_deepseek_mixture(ctx, path, root, true, &defaults, config));
    CALM_TRY(calm_config_latent_experts(ctx, path, root, config));
    /* calm_config_deepseek_mixture has made every block sparse; this reads the actual list. */
    return read_singles(ctx, path, root, config);
}
