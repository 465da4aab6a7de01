/* config.json, the part that the families share. */
#include "ptq/model/config.h"

#include <string.h>

#include "ptq/model/arch.h"

#define SIZE_LIMIT ((int64_t)1 << 24)    /* no dimension of a real model comes near; keeps products in range */

static calm_status unknown_architecture(calm_ctx *ctx, const char *path, const char *class_name, const char *model_type)
{
    size_t n;
    const calm_arch *const *all = calm_architectures(&n);
    calm_text known;
    calm_text_init(&known);
    for (size_t i = 0; i < n; i++)
        calm_text_printf(&known, "%s%s", i ? ", " : "", all[i]->class_name);
    calm_status status = calm_fail(ctx, CALM_EUNSUPPORTED, "%s: architecture %s is not known; calm knows %s", path,
                                   class_name ? class_name : model_type ? model_type : "(none named)",
                                   known.data ? known.data : "none");
    calm_text_clear(&known);
    return status;
}

/* Settings of other families that would change this one's computation. */
static calm_status refuse_foreign_keys(calm_ctx *ctx, const char *path, const calm_json *root)
{
    static const char *const foreign[] = {
        "attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar", "num_experts",
        "num_local_experts", "embedding_multiplier", "logits_scaling", "residual_multiplier",
        "attention_multiplier", "attention_sinks", "logit_scale", "kv_lora_rank",
    };
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (calm_json_typeof(calm_json_get(root, foreign[i])) != CALM_JSON_NULL)
            return calm_fail(ctx, CALM_EUNSUPPORTED,
                             "%s: \"%s\" is set, which this architecture's forward pass does not "
                             "know",
                             path, foreign[i]);
    double partial;
    const double whole = 1.0;
    CALM_TRY(calm_json_need_number(ctx, path, root, "partial_rotary_factor", &whole, 0, 1, &partial));
    if (partial != 1.0)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"partial_rotary_factor\": %g is not supported, only 1", path,
                         partial);
    return CALM_OK;
}

/* rope_parameters {rope_theta, rope_type} or rope_theta beside rope_scaling. */
static calm_status read_rope(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    const calm_json *parameters = calm_json_get(root, "rope_parameters");
    const calm_json *scaling = calm_json_get(root, "rope_scaling");
    const calm_json *described = calm_json_size(parameters) ? parameters : scaling;
    const char *kind = "default";
    if (calm_json_typeof(described) == CALM_JSON_OBJECT) {
        CALM_TRY(calm_json_need_string(ctx, path, described, "type", kind, &kind));
        CALM_TRY(calm_json_need_string(ctx, path, described, "rope_type", kind, &kind));
    } else if (calm_json_typeof(described) != CALM_JSON_NULL) {
        return calm_fail(ctx, CALM_EFORMAT, "%s: rope settings: expected an object", path);
    }
    if (strcmp(kind, "default") != 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: rope_type \"%s\" is not supported, only \"default\"", path, kind);
    double theta = config->arch->default_rope_theta;
    CALM_TRY(calm_json_need_number(ctx, path, root, "rope_theta", &theta, 1, 1e12, &theta));
    CALM_TRY(calm_json_need_number(ctx, path, parameters, "rope_theta", &theta, 1, 1e12, &theta));
    config->rope_theta = theta;
    return CALM_OK;
}

static calm_status read_size(calm_ctx *ctx, const char *path, const calm_json *root, const char *key,
                             const int64_t *fallback, size_t *out)
{
    int64_t value = 0;
    CALM_TRY(calm_json_need_int(ctx, path, root, key, fallback, 1, SIZE_LIMIT, &value));
    *out = (size_t)value;
    return CALM_OK;
}

static calm_status read_heads(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    const calm_arch *arch = config->arch;
    CALM_TRY(read_size(ctx, path, root, "num_attention_heads", NULL, &config->n_heads));
    int64_t kv = arch->default_kv_heads ? arch->default_kv_heads : (int64_t)config->n_heads;
    int64_t width = arch->default_head_dim ? arch->default_head_dim : (int64_t)(config->hidden / config->n_heads);
    CALM_TRY(read_size(ctx, path, root, "num_key_value_heads", &kv, &config->n_kv));
    CALM_TRY(read_size(ctx, path, root, "head_dim", &width, &config->head_dim));
    if (config->n_heads % config->n_kv != 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s: num_attention_heads %zu is not a multiple of num_key_value_heads %zu",
                         path, config->n_heads, config->n_kv);
    if (config->head_dim % 2 != 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s: head_dim %zu is odd; rotary embedding needs pairs", path,
                         config->head_dim);
    if (config->n_heads * config->head_dim > (size_t)SIZE_LIMIT)
        return calm_fail(ctx, CALM_EFORMAT, "%s: %zu heads of %zu: expected at most %lld in all", path, config->n_heads,
                         config->head_dim, (long long)SIZE_LIMIT);
    return CALM_OK;
}

static calm_status read_dtype(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    static const struct {
        const char *name;
        calm_dtype dtype;
    } known[] = {{"bfloat16", CALM_BF16}, {"float16", CALM_F16}, {"float32", CALM_F32}};
    const char *name = "bfloat16";
    CALM_TRY(calm_json_need_string(ctx, path, root, "torch_dtype", name, &name));
    CALM_TRY(calm_json_need_string(ctx, path, root, "dtype", name, &name));
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i].name) == 0) {
            config->dtype = known[i].dtype;
            return CALM_OK;
        }
    return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: dtype \"%s\": expected bfloat16, float16 or float32", path, name);
}

static calm_status read_common(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    const bool no = false;
    const double eps = 1e-6;
    const int64_t positions = 2048;
    double value;
    const char *activation;
    CALM_TRY(read_size(ctx, path, root, "hidden_size", NULL, &config->hidden));
    CALM_TRY(read_size(ctx, path, root, "intermediate_size", NULL, &config->inner));
    CALM_TRY(read_size(ctx, path, root, "num_hidden_layers", NULL, &config->n_blocks));
    CALM_TRY(read_size(ctx, path, root, "vocab_size", NULL, &config->vocab));
    CALM_TRY(read_size(ctx, path, root, "max_position_embeddings", &positions, &config->max_positions));
    if (config->n_blocks > 4096)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"num_hidden_layers\": expected 1 to 4096, found %zu", path,
                         config->n_blocks);
    CALM_TRY(read_heads(ctx, path, root, config));
    CALM_TRY(calm_json_need_number(ctx, path, root, "rms_norm_eps", &eps, 0, 1, &value));
    config->norm_eps = (float)value;
    CALM_TRY(calm_json_need_bool(ctx, path, root, "tie_word_embeddings", &no, &config->tied));
    CALM_TRY(calm_json_need_bool(ctx, path, root, "attention_bias", &no, &config->attention_bias));
    CALM_TRY(calm_json_need_string(ctx, path, root, "hidden_act", "silu", &activation));
    if (strcmp(activation, "silu") != 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"hidden_act\": \"%s\" is not supported, only \"silu\"", path,
                         activation);
    return CALM_OK;
}

calm_status calm_config_read(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *out)
{
    memset(out, 0, sizeof *out);
    if (calm_json_typeof(root) != CALM_JSON_OBJECT)
        return calm_fail(ctx, CALM_EFORMAT, "%s: expected an object", path);
    const char *class_name = calm_json_string(calm_json_at(calm_json_get(root, "architectures"), 0), NULL);
    const char *model_type = calm_json_string(calm_json_get(root, "model_type"), NULL);
    out->arch = calm_arch_find(class_name, model_type);
    if (!out->arch)
        return unknown_architecture(ctx, path, class_name, model_type);
    CALM_TRY(read_common(ctx, path, root, out));
    CALM_TRY(refuse_foreign_keys(ctx, path, root));
    CALM_TRY(read_rope(ctx, path, root, out));
    CALM_TRY(read_dtype(ctx, path, root, out));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->window, out->n_blocks));
    return out->arch->read_config(ctx, path, root, out);
}
