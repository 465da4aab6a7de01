/* Reads mixtures of experts from config.json. */
#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/base/text.h"

/* Bounds n_blocks * n_experts, which a config of a few bytes could make arbitrarily large. */
#define EXPERTS_MAX ((size_t)1 << 18)
#define EXPERTS_OF_A_BLOCK (1 << 14)

bool calm_config_is_mixture(const calm_config *config)
{
    bool any = false;
    for (size_t b = 0; b < config->n_blocks; b++)
        any |= config->moe.sparse[b];
    return any;
}

/* Sets moe.sparse of the blocks whose numbers the list `key`, where it is present, has. */
static calm_status mark_blocks(calm_ctx *ctx, const char *path, const calm_json *root, const char *key, bool sparse,
                               calm_config *config)
{
    const calm_json *list = calm_json_get(root, key);
    for (size_t i = 0; i < calm_json_size(list); i++) {
        const int64_t block = calm_json_int(calm_json_at(list, i), -1);
        if (block < 0)
            return calm_fail(ctx, CALM_EFORMAT, "%s: \"%s\"[%zu]: expected the number of a block", path, key, i);
        /* Numbers beyond the last block are ignored: a config may be shortened from a larger model's. */
        if ((size_t)block < config->n_blocks)
            config->moe.sparse[block] = sparse;
    }
    return CALM_OK;
}

/* Is the list `key` present?  CALM_EFORMAT: it is no list. */
static calm_status expect_list(calm_ctx *ctx, const char *path, const calm_json *root, const char *key, bool *listed)
{
    const calm_json *list = calm_json_get(root, key);
    *listed = calm_json_typeof(list) != CALM_JSON_NULL;
    return *listed ? calm_json_expect(ctx, list, CALM_JSON_ARRAY, "%s: \"%s\"", path, key) : CALM_OK;
}

/* Makes blocks i with (i + 1) % step == 0 sparse, except those in mlp_only_layers. */
static calm_status read_sparse(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    int64_t step;
    bool listed;
    CALM_TRY(calm_json_need_int(ctx, path, root, "decoder_sparse_step", &(int64_t){1}, 1, 1 << 20, &step));
    for (size_t i = 0; i < config->n_blocks; i++)
        config->moe.sparse[i] = (i + 1) % (size_t)step == 0;
    CALM_TRY(expect_list(ctx, path, root, "mlp_only_layers", &listed));
    return mark_blocks(ctx, path, root, "mlp_only_layers", false, config);
}

calm_status calm_config_sparse_list(calm_ctx *ctx, const char *path, const calm_json *root, const char *key,
                                    const char *step_key, calm_config *config)
{
    int64_t step;
    bool listed;
    CALM_TRY(expect_list(ctx, path, root, key, &listed));
    CALM_TRY(calm_json_need_int(ctx, path, root, step_key, &(int64_t){1}, listed ? 0 : 1, 1 << 20, &step));
    for (size_t i = 0; i < config->n_blocks; i++)
        config->moe.sparse[i] = !listed && (i + 1) % (size_t)step == 0;
    return mark_blocks(ctx, path, root, key, true, config);
}

calm_status calm_config_sparse_types(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    const calm_json *types = calm_json_get(root, "mlp_layer_types");
    if (calm_json_typeof(types) == CALM_JSON_NULL)
        return CALM_OK;
    CALM_TRY(calm_config_one_per_block(ctx, path, "mlp_layer_types", types, config));
    for (size_t i = 0; i < config->n_blocks; i++) {
        const char *type = calm_json_string(calm_json_at(types, i), "");
        config->moe.sparse[i] = strcmp(type, "sparse") == 0;
        if (!config->moe.sparse[i] && strcmp(type, "dense") != 0)
            return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"mlp_layer_types\"[%zu]: found \"%s\", expected dense or "
                             "sparse", path, i, type);
    }
    return CALM_OK;
}

calm_status calm_config_sparse_range(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    const int64_t last = (int64_t)config->n_blocks - 1;
    int64_t start, end, interval;
    CALM_TRY(calm_json_need_int(ctx, path, root, "moe_layer_start_index", &(int64_t){1}, 0, 1 << 20, &start));
    CALM_TRY(calm_json_need_int(ctx, path, root, "moe_layer_end_index", &(int64_t){-1}, -1, 1 << 20, &end));
    CALM_TRY(calm_json_need_int(ctx, path, root, "moe_layer_interval", &(int64_t){1}, 1, 1 << 20, &interval));
    for (int64_t i = 0; i <= last; i++)
        config->moe.sparse[i] = (i + 1) % interval == 0 && i >= start && i <= (end < 0 ? last : end);
    return CALM_OK;
}

calm_status calm_config_mixture(calm_ctx *ctx, const char *path, const calm_json *root, const calm_moe_keys *keys,
                                calm_config *config)
{
    calm_moe_config *moe = &config->moe;
    int64_t n, k;
    CALM_TRY(calm_json_need_int(ctx, path, root, keys->experts, NULL, 1, EXPERTS_OF_A_BLOCK, &n));
    /* A token cannot use more experts than there are. */
    CALM_TRY(calm_json_need_int(ctx, path, root, keys->top_k, NULL, 1, n, &k));
    CALM_TRY(calm_config_size(ctx, path, root, keys->inner, NULL, &moe->inner));
    moe->norm_top_k = keys->norm;
    /* Code of the other families does not read the key, which may contradict it. */
    if (calm_text_listed(config->arch->keys, ' ', "norm_topk_prob"))
        CALM_TRY(calm_config_switch(ctx, path, root, "norm_topk_prob", keys->norm, &moe->norm_top_k));
    moe->n_experts = (size_t)n;
    moe->top_k = (size_t)k;
    /* Families with some dense blocks change this afterwards. */
    for (size_t i = 0; i < config->n_blocks; i++)
        moe->sparse[i] = true;
    if (config->n_blocks * moe->n_experts > EXPERTS_MAX)    /* the layer table has rows for each */
        return calm_fail(ctx, CALM_EFORMAT, "%s: %zu experts in each of %zu blocks: expected at most %zu in all", path,
                         moe->n_experts, config->n_blocks, EXPERTS_MAX);
    return CALM_OK;
}

/* Reads the groups of experts, and how many of them a token uses. */
static calm_status read_groups(calm_ctx *ctx, const char *path, const calm_json *root,
                               const calm_grouped_defaults *defaults, calm_config *config)
{
    calm_moe_config *moe = &config->moe;
    int64_t n, top;
    CALM_TRY(calm_json_need_int(ctx, path, root, "n_group", &defaults->groups, 1, CALM_ROUTER_GROUPS, &n));
    CALM_TRY(calm_json_need_int(ctx, path, root, "topk_group", &defaults->top, 1, n, &top));
    moe->n_groups = (size_t)n;
    moe->top_groups = (size_t)top;
    if (moe->n_experts % moe->n_groups != 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"n_group\": %zu experts in %zu groups: expected groups of one size",
                         path, moe->n_experts, moe->n_groups);
    if (moe->top_k > moe->top_groups * (moe->n_experts / moe->n_groups))
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"topk_group\": %zu groups of %zu experts hold fewer than the %zu of "
                         "\"num_experts_per_tok\"", path, moe->top_groups, moe->n_experts / moe->n_groups, moe->top_k);
    return CALM_OK;
}

static calm_status read_grouped(calm_ctx *ctx, const char *path, const calm_json *root,
                                const calm_grouped_defaults *defaults, calm_config *config)
{
    calm_moe_config *moe = &config->moe;
    int64_t shared, dense;
    double scale;
    CALM_TRY(calm_json_need_int(ctx, path, root, "n_shared_experts", &defaults->shared, 0, 1 << 10, &shared));
    CALM_TRY(calm_json_need_int(ctx, path, root, "first_k_dense_replace", &defaults->dense, 0, 1 << 20, &dense));
    CALM_TRY(calm_json_need_number(ctx, path, root, "routed_scaling_factor", &defaults->scale, 1e-6, 1e6, &scale));
    CALM_TRY(read_groups(ctx, path, root, defaults, config));
    /* Several shared experts are stored as one, of the sum of their widths. */
    moe->shared_inner = (size_t)shared * moe->inner;
    /* The bias affects only the choice; weights are the sigmoids without it. */
    moe->score = CALM_ROUTER_SIGMOID;
    moe->choice_bias = true;
    /* Avoids division by a sum of zero. */
    moe->sum_plus = 1e-20f;
    moe->scale = (float)scale;
    /* The first blocks have an MLP of width intermediate_size. */
    for (size_t i = 0; i < config->n_blocks; i++)
        moe->sparse[i] = (int64_t)i >= dense;
    return CALM_OK;
}

calm_status calm_config_deepseek_mixture(calm_ctx *ctx, const char *path, const calm_json *root, bool norm,
                                         const calm_grouped_defaults *defaults, calm_config *config)
{
    const calm_moe_keys keys = {"n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", norm};
    CALM_TRY(calm_config_fixed(ctx, path, root, "moe_layer_freq=1"));
    CALM_TRY(calm_config_mixture(ctx, path, root, &keys, config));
    return read_grouped(ctx, path, root, defaults, config);
}

calm_status calm_config_experts(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    /* Mixtral's name of the key, which newer files of other families use too. */
    const bool local = calm_json_typeof(calm_json_get(root, "num_local_experts")) != CALM_JSON_NULL;
    const calm_moe_keys keys = {local ? "num_local_experts" : "num_experts", "num_experts_per_tok",
                                "moe_intermediate_size", false};
    CALM_TRY(calm_config_mixture(ctx, path, root, &keys, config));
    return read_sparse(ctx, path, root, config);
}

calm_status calm_config_experts_beside(calm_ctx *ctx, const char *path, const calm_json *root, const char *key,
                                       const calm_moe_keys *keys, calm_config *config)
{
    int64_t n = 1;
    bool on = true;
    if (key)
        CALM_TRY(calm_json_need_bool(ctx, path, root, key, &(bool){false}, &on));
    else
        CALM_TRY(calm_json_need_int(ctx, path, root, keys->experts, NULL, 0, EXPERTS_OF_A_BLOCK, &n));
    if (!on || n == 0)
        return CALM_OK;
    /* The shared expert has one width for all blocks. */
    for (size_t i = 0; i < config->n_blocks; i++)
        if (config->shapes[i].kv == CALM_KV_SHARED && config->shapes[i].inner != config->inner)
            return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"use_double_wide_mlp\": expected false with \"%s\" true",
                             path, key ? key : keys->experts);
    config->moe.shared_inner = config->inner;
    return calm_config_mixture(ctx, path, root, keys, config);
}

calm_status calm_config_latent_experts(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    if (calm_json_typeof(calm_json_get(root, "moe_latent_size")) != CALM_JSON_NULL)
        CALM_TRY(calm_config_size(ctx, path, root, "moe_latent_size", NULL, &config->moe.latent));
    /* Biases of the shared expert, which is one of a separate width even if "n_shared_experts" says otherwise; routed
     * experts have none. */
    CALM_TRY(calm_json_need_bool(ctx, path, root, "mlp_bias", &(bool){false}, &config->moe.shared_bias));
    if (config->moe.shared_bias && config->moe.latent)    /* biases of the linears B and C are not implemented */
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"mlp_bias\": found true, expected false with "
                         "\"moe_latent_size\"", path);
    return calm_config_size(ctx, path, root, "moe_shared_expert_intermediate_size", NULL, &config->moe.shared_inner);
}
