/* Reads the settings of config.json that the families share. */
#include "ptq/arch/config.h"

#include <math.h>
#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/arch/wrapper.h"

/* The failure names the class found and all known families, since their classes do not fit into a message. */
static calm_status unknown_architecture(calm_ctx *ctx, const char *path, const char *class_name, const char *model_type)
{
    size_t n;
    const calm_arch *const *all = calm_architectures(&n);
    CALM_SCOPED_TEXT(known);
    for (size_t i = 0; i < n; i++)
        calm_text_printf(&known, "%s%s", i ? " " : "", all[i]->name);
    return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: architecture %s is not known; calm knows the families %s", path,
                     class_name ? class_name : model_type ? model_type : "(none named)",
                     known.data ? known.data : "none");
}

calm_status calm_config_size(calm_ctx *ctx, const char *path, const calm_json *root, const char *key,
                             const int64_t *fallback, size_t *out)
{
    int64_t value = 0;
    CALM_TRY(calm_json_need_int(ctx, path, root, key, fallback, 1, CALM_SIZE_LIMIT, &value));
    *out = (size_t)value;
    return CALM_OK;
}

/* Returns the keys of the sizes. */
static const calm_size_keys *size_keys(const calm_arch *arch, const calm_json *root)
{
    static const calm_size_keys usual = {CALM_USUAL_SIZES("intermediate_size")};
    if (arch->old_sizes && calm_json_get(root, arch->old_sizes->hidden))
        return arch->old_sizes;
    return arch->sizes ? arch->sizes : &usual;
}

/* Reads the numbers and widths of heads; sets the scale 1 / sqrt(d) of the scores, which Gemma overrides. */
static calm_status read_heads(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    const calm_arch *arch = config->arch;
    const calm_size_keys *keys = size_keys(arch, root);
    CALM_TRY(calm_config_size(ctx, path, root, keys->heads, NULL, &config->n_heads));
    if (arch->latent)
        return calm_config_latent_heads(ctx, path, root, config);
    /* null also means the quotient in classes with a separate default. */
    const bool quotient = !arch->default_head_dim || calm_json_get(root, "head_dim");
    /* Only here is the width of a head the quotient; otherwise heads * head_dim may differ from the hidden size. */
    if (quotient && calm_json_typeof(calm_json_get(root, "head_dim")) == CALM_JSON_NULL &&
        config->hidden % config->n_heads != 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s: %s %zu is not a multiple of %s %zu", path, keys->hidden,
                         config->hidden, keys->heads, config->n_heads);
    const bool many =
        arch->default_kv_heads && !calm_json_get(root, "num_key_value_heads"); /* null: as many as heads */
    int64_t kv = many ? arch->default_kv_heads : (int64_t)config->n_heads;
    int64_t width = quotient ? (int64_t)(config->hidden / config->n_heads) : arch->default_head_dim;
    CALM_TRY(calm_config_size(ctx, path, root, "num_key_value_heads", &kv, &config->n_kv));
    CALM_TRY(calm_config_size(ctx, path, root, "head_dim", &width, &config->head_dim));
    if (config->n_heads % config->n_kv != 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s: num_attention_heads %zu is not a multiple of num_key_value_heads %zu",
                         path, config->n_heads, config->n_kv);
    /* Each factor is below 2^24; their product, the width of q, has the same limit. */
    if (config->n_heads * config->head_dim > (size_t)CALM_SIZE_LIMIT)
        return calm_fail(ctx, CALM_EFORMAT, "%s: %zu heads of %zu: expected at most %lld in all", path, config->n_heads,
                         config->head_dim, (long long)CALM_SIZE_LIMIT);
    config->attention_scale = (float)(1.0 / sqrt((double)config->head_dim));
    return CALM_OK;
}

/* Reads "torch_dtype" or "dtype", the type in which exporters write floats. */
static calm_status read_dtype(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    /* The newer key is read second, so it takes precedence. */
    const char *name = "bfloat16";
    CALM_TRY(calm_json_need_string(ctx, path, root, "torch_dtype", name, &name));
    CALM_TRY(calm_json_need_string(ctx, path, root, "dtype", name, &name));
    /* The assumed dtype of a config without either key is corrected when the tensors are open. */
    config->dtype_known = calm_json_typeof(calm_json_get(root, "torch_dtype")) != CALM_JSON_NULL ||
                          calm_json_typeof(calm_json_get(root, "dtype")) != CALM_JSON_NULL;
    config->dtype = calm_dtype_of_word(name);
    if (config->dtype == CALM_N_DTYPES)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: dtype \"%s\": expected bfloat16, float16 or float32", path, name);
    return CALM_OK;
}

calm_status calm_config_activation(calm_ctx *ctx, const char *path, const calm_json *root, const char *key,
                                   const char *usual, calm_activation *out)
{
    static const char names[] = "silu|swish|gelu|gelu_python|gelu_pytorch_tanh|gelu_new|gelu_fast|gelu_accurate|"
                                "gelu_python_tanh|quick_gelu|relu|relu2";
    static const calm_activation known[] = {CALM_ACTIVATION_SILU, CALM_ACTIVATION_SILU, CALM_ACTIVATION_GELU,
                                            CALM_ACTIVATION_GELU, CALM_ACTIVATION_GELU_TANH, CALM_ACTIVATION_GELU_TANH,
                                            CALM_ACTIVATION_GELU_TANH, CALM_ACTIVATION_GELU_TANH,
                                            CALM_ACTIVATION_GELU_TANH, CALM_ACTIVATION_GELU_QUICK,
                                            CALM_ACTIVATION_RELU, CALM_ACTIVATION_RELU2};
    const char *name;
    CALM_TRY(calm_json_need_string(ctx, path, root, key, usual, &name));
    /* The published code of Nomic's BERT names the function together with its gate. */
    const int index = calm_option_value_index(names, strcmp(name, "swiglu") == 0 ? "silu" : name);
    if (index < 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"%s\": \"%s\" is not supported; expected silu, gelu, "
                         "gelu_pytorch_tanh, gelu_new, quick_gelu, relu or relu2", path, key, name);
    *out = known[index];
    return CALM_OK;
}

/* Reads the activation function; "hidden_activation" (Gemma) takes precedence over "hidden_act". */
static calm_status read_activation(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    /* Gemma's configs may also have a hidden_act, which Gemma's own code does not read. */
    const bool gemma = config->arch->norm == CALM_NORM_RMS_PLUS_ONE && !config->arch->default_activation;
    const char *usual = config->arch->default_activation ? config->arch->default_activation
                        : gemma                          ? "gelu_pytorch_tanh"
                                                         : "silu";
    const char *own = size_keys(config->arch, root)->activation;
    const char *key = own ? own : gemma ? "hidden_activation" : "hidden_act";
    return calm_config_activation(ctx, path, root, key, usual, &config->activation);
}

/* Reads the number of blocks; in some families it is the number of entries of a list or of letters of a word, and
 * "num_hidden_layers" is absent or equal.  CALM_EFORMAT: they differ. */
static calm_status read_n_blocks(calm_ctx *ctx, const char *path, const calm_json *root, const calm_size_keys *keys,
                                 calm_config *config)
{
    const calm_json *list = config->arch->block_list ? calm_json_get(root, config->arch->block_list) : NULL;
    const calm_json *word = config->arch->block_word ? calm_json_get(root, config->arch->block_word) : NULL;
    const bool listed = calm_json_typeof(list) == CALM_JSON_ARRAY;
    if (!listed && calm_json_typeof(word) != CALM_JSON_STRING)
        return calm_config_size(ctx, path, root, keys->blocks, NULL, &config->n_blocks);
    const int64_t n = (int64_t)(listed ? calm_json_size(list) : calm_json_string_length(word));
    CALM_TRY(calm_config_size(ctx, path, root, keys->blocks, &n, &config->n_blocks));
    if (n == 0 || config->n_blocks != (size_t)n)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"%s\": %lld entries, expected %zu (%s)", path,
                         listed ? config->arch->block_list : config->arch->block_word, (long long)n,
                         config->n_blocks, keys->blocks);
    return CALM_OK;
}

/* Reads the settings of every family, with its defaults for absent keys, and allocates arrays over blocks. */
static calm_status read_common(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    const bool tied = config->arch->default_tied;
    const calm_size_keys *keys = size_keys(config->arch, root);
    const char *eps_key = keys->eps                                ? keys->eps
                          : config->arch->eps_key                  ? config->arch->eps_key
                          : config->arch->norm == CALM_NORM_LAYER ? "layer_norm_eps"
                                                                  : "rms_norm_eps";
    const char *inner = keys->inner_first && calm_json_get(root, keys->inner_first) ? keys->inner_first : keys->inner;
    const double eps = config->arch->default_eps > 0 ? config->arch->default_eps : 1e-6;
    const int64_t positions = config->arch->default_positions ? config->arch->default_positions : 2048;
    double value;
    CALM_TRY(calm_config_size(ctx, path, root, keys->hidden, NULL, &config->hidden));
    if (!config->arch->inner_list || calm_json_typeof(calm_json_get(root, inner)) != CALM_JSON_ARRAY)
        CALM_TRY(calm_config_size(ctx, path, root, inner, NULL, &config->inner));
    CALM_TRY(read_n_blocks(ctx, path, root, keys, config));
    CALM_TRY(calm_config_size(ctx, path, root, "vocab_size", NULL, &config->vocab));
    CALM_TRY(calm_config_size(ctx, path, root, keys->positions, &positions, &config->max_positions));
    /* Bounds the arrays over blocks that are allocated below; real models have far fewer blocks. */
    if (config->n_blocks > 4096)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"%s\": expected 1 to 4096, found %zu", path, keys->blocks,
                         config->n_blocks);
    CALM_TRY(read_heads(ctx, path, root, config));
    CALM_TRY(calm_json_need_number(ctx, path, root, eps_key, &eps, 0, 1, &value));
    config->norm_eps = (float)value;
    /* Values that families change: their read_config runs last. */
    config->embedding_scale = 1;
    config->both_ways = config->arch->both_ways;
    config->norm_bias = calm_arch_norm_biased(config->arch);
    config->qk_norm = config->arch->qk_norm;
    config->moe.scale = 1;
    CALM_TRY(calm_json_need_bool(ctx, path, root, "tie_word_embeddings", &tied, &config->tied));
    CALM_TRY(read_activation(ctx, path, root, config));
    config->head_activation = config->activation;
    CALM_TRY(CALM_NEW(ctx, ctx->out, config->window, config->n_blocks));
    CALM_TRY(CALM_NEW(ctx, ctx->out, config->local_rope, config->n_blocks));
    return CALM_NEW(ctx, ctx->out, config->moe.sparse, config->n_blocks);
}

/* Applies one alias OTHER=KEY: OTHER's value becomes KEY's in *own, a copy of `root` that the first alias makes. */
static calm_status rename_one(calm_ctx *ctx, const char *path, const calm_json *root, const char *alias, size_t n,
                              calm_json **own)
{
    const size_t length = strcspn(alias, "=");
    char *other, *key;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &other, "%.*s", (int)length, alias));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &key, "%.*s", (int)(n - length - 1), alias + length + 1));
    const calm_json *given = calm_json_get(root, other), *value = calm_json_get(root, key);
    const char *text = NULL, *expected = NULL;
    if (calm_json_typeof(given) == CALM_JSON_NULL)
        return CALM_OK;
    if (calm_json_typeof(value) != CALM_JSON_NULL) {
        CALM_TRY(calm_json_text(ctx, given, &text));
        CALM_TRY(calm_json_text(ctx, value, &expected));
        if (strcmp(text, expected) != 0)
            return calm_fail(ctx, CALM_EFORMAT, "%s: \"%s\": found %s, expected the %s of \"%s\", of which it is "
                             "another name", path, other, text, expected, key);
    }
    if (!*own)
        *own = calm_json_copy(root);
    calm_json *copy = calm_json_copy(given);
    if (!*own || !copy)
        return calm_fail(ctx, CALM_ENOMEM, "%s: out of memory", path);
    calm_json_set(*own, key, copy);
    calm_json_remove(*own, other);
    return CALM_OK;
}

/* Applies all of the family's aliases; *own stays NULL where none is used. */
static calm_status rename_keys(calm_ctx *ctx, const char *path, const calm_json *root, const calm_arch *arch,
                               calm_json **own)
{
    for (const char *at = arch->aliases; at && *at;) {
        const size_t n = strcspn(at, " ");
        CALM_TRY(rename_one(ctx, path, root, at, n, own));
        at += n + (at[n] == ' ');
    }
    return CALM_OK;
}

static calm_status read_text(calm_ctx *ctx, const char *path, const calm_json *root, const calm_words *accepted,
                             calm_config *out)
{
    CALM_SCOPED_JSON(own);
    const char *class_name = calm_json_string(calm_json_at(calm_json_get(root, "architectures"), 0), NULL);
    const char *model_type = calm_json_string(calm_json_get(root, "model_type"), NULL);
    out->arch = calm_arch_find(class_name, model_type);
    if (!out->arch)
        return unknown_architecture(ctx, path, class_name, model_type);
    if (calm_arch_is_headless(out->arch, class_name))
        CALM_TRY(calm_arch_without_head(ctx, out->arch, &out->arch));
    CALM_TRY(rename_keys(ctx, path, root, out->arch, &own));
    if (own)
        root = own;
    /* Checked first, since an unknown setting is a better message than its consequences. */
    CALM_TRY(calm_config_check_keys(ctx, path, root, out->arch, accepted));
    CALM_TRY(read_common(ctx, path, root, out));
    /* After head_dim and max_positions, which rotary embeddings depend on. */
    if (out->arch->default_rope_theta > 0)
        CALM_TRY(calm_config_rope(ctx, path, root, out));
    CALM_TRY(read_dtype(ctx, path, root, out));
    if (out->arch->varies)
        CALM_TRY(calm_config_new_shapes(ctx, out));
    CALM_TRY(calm_config_fixed(ctx, path, root, out->arch->fixed));
    if (out->arch->read_config)
        CALM_TRY(out->arch->read_config(ctx, path, root, out));
    return calm_config_new_blocks(ctx, out);
}

calm_status calm_config_read(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *out)
{
    return calm_config_read_accepting(ctx, path, root, NULL, out);
}

calm_status calm_config_read_accepting(calm_ctx *ctx, const char *path, const calm_json *root,
                                       const calm_words *accepted, calm_config *out)
{
    CALM_SCOPED_JSON(text);
    CALM_SCOPED_SCRATCH(ctx);
    char *where;
    memset(out, 0, sizeof *out);
    if (calm_json_typeof(root) != CALM_JSON_OBJECT)
        return calm_fail(ctx, CALM_EFORMAT, "%s: expected an object", path);
    CALM_TRY(calm_config_text(ctx, path, root, &text));
    if (!text)
        return read_text(ctx, path, root, accepted, out);
    CALM_TRY(calm_strf(ctx, ctx->scratch, &where, "%s: text_config", path));
    return read_text(ctx, where, text, accepted, out);
}

/* ---- positions ---- */

size_t calm_config_positions(const calm_config *config)
{
    return config->max_positions - config->position_base;
}
