/* Reads rotary embeddings from config.json, in all spellings.
 *
 *   rope_theta next to rope_scaling {type | rope_type, ...}       classic
 *   rope_parameters {rope_theta, rope_type, ...}                 transformers 5
 *   rope_parameters {full_attention: {...}, sliding_attention: {...}}  the same where blocks differ (gemma3) */
#include <math.h>
#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/base/option.h"
#include "ptq/base/text.h"

/* Keeps products of two factors finite in float32. */
#define FACTOR_MAX 1e9

static const char known[] =
    "type rope_type rope_theta factor low_freq_factor high_freq_factor original_max_position_embeddings beta_fast "
    "beta_slow attention_factor mscale mscale_all_dim truncate long_factor short_factor partial_rotary_factor";

/* Keys of wrappers: which channels rotate by which of an image's three positions.  For a token of text the three are
 * equal, and the result is the plain embedding. */
static const char known_mrope[] = "mrope_section mrope_interleaved";

/* The description of one rotary embedding: its own object, and the top level. */
typedef struct source {
    const char *path;
    const calm_json *root, *described;
} source;

/* Fails with CALM_EUNSUPPORTED for a member of the embedding's object that nothing reads. */
static calm_status check_names(calm_ctx *ctx, const source *from, const calm_arch *arch)
{
    const char *key;
    const calm_json *value;
    /* An unknown setting is refused unless it is off: it would change every angle. */
    for (void *iter = NULL; calm_json_next(from->described, &iter, &key, &value);)
        if (!calm_text_listed(known, ' ', key) && !(arch->rope_keys && calm_text_listed(arch->rope_keys, ' ', key)) &&
            !(arch->mrope && calm_text_listed(known_mrope, ' ', key)) && calm_json_typeof(value) != CALM_JSON_NULL &&
            !(calm_json_typeof(value) == CALM_JSON_BOOL && !calm_json_bool(value, true)))
            return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: rope settings: \"%s\" is not known", from->path, key);
    return CALM_OK;
}

/* Reads "rope_type" or "type"; without either it is the plain embedding. */
static calm_status find_kind(calm_ctx *ctx, const source *from, const calm_config *config, calm_rope_config *out)
{
    /* In the order of calm_rope_kind; "su" is Phi-3's first name of longrope. */
    static const char kinds[] = "default|linear|dynamic|llama3|yarn|longrope|su|mrope|ntk|proportional";
    const int mrope = CALM_ROPE_LONGROPE + 2, ntk = mrope + 1, proportional = ntk + 1;
    const char *name = "default";
    /* The old key first, so that the new one takes precedence. */
    CALM_TRY(calm_json_need_string(ctx, from->path, from->described, "type", name, &name));
    CALM_TRY(calm_json_need_string(ctx, from->path, from->described, "rope_type", name, &name));
    const int kind = calm_option_value_index(kinds, name);
    if (kind < 0 || (kind == mrope && !config->arch->mrope) || (kind == ntk && !config->arch->ntk_rope) ||
        (kind == proportional && !config->arch->proportional_rope))
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: rope_type \"%s\" is not supported; expected default, linear, "
                         "dynamic, llama3, yarn or longrope", from->path, name);
    const bool old = config->arch->phi_rope && kind == CALM_ROPE_YARN;
    if (kind == mrope)
        out->kind = CALM_ROPE_DEFAULT;
    else if (kind == ntk)
        out->kind = CALM_ROPE_LINEAR;    /* read_one() changes theta and factor */
    else if (kind == proportional)
        out->kind = CALM_ROPE_PROPORTIONAL;
    else
        out->kind = old || kind > CALM_ROPE_LONGROPE ? CALM_ROPE_LONGROPE : (calm_rope_kind)kind;
    return CALM_OK;
}

/* Is it rope_type ntk, https://kexue.fm/archives/9706: f_c = (theta factor)^(-2c/r) / factor^(2/r)? */
static bool is_ntk(const source *from)
{
    const char *type = calm_json_string(calm_json_get(from->described, "type"), "");
    return strcmp(calm_json_string(calm_json_get(from->described, "rope_type"), type), "ntk") == 0;
}

/* Reads a number of the embedding's own object. */
static calm_status number(calm_ctx *ctx, const source *from, const char *key, const double *fallback, double min,
                          double max, double *out)
{
    return calm_json_need_number(ctx, from->path, from->described, key, fallback, min, max, out);
}

/* Reads the rotated channels.  Phi's code allows a partial embedding for every kind of rope, and some families have
 * one; elsewhere readers disagree about the key, so it is refused. */
static calm_status read_rotary(calm_ctx *ctx, const source *from, const calm_config *config, calm_rope_config *out)
{
    double share = config->arch->partial_rope > 0 ? config->arch->partial_rope : 1;
    CALM_TRY(calm_json_need_number(ctx, from->path, from->root, "partial_rotary_factor", &share, 0, 1, &share));
    CALM_TRY(number(ctx, from, "partial_rotary_factor", &share, 0, 1, &share));
    /* Proportional embeddings rotate the whole head, and the share is that of its pairs. */
    out->share = share;
    if (out->kind == CALM_ROPE_PROPORTIONAL)
        share = 1;
    if (share != 1 && !config->arch->phi_rope && config->arch->partial_rope == 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"partial_rotary_factor\" %g is not supported for %s", from->path,
                         share, config->arch->name);
    /* Rounded down, like int() in transformers. */
    const size_t width = config->latent.rope ? config->latent.rope : config->head_dim;
    out->rotary = (size_t)((double)width * share);
    /* For an odd number of channels transformers rotates one more; with YaRN it has no ramp for that. */
    out->odd = out->rotary % 2 != 0 && out->rotary < width && !config->latent.rope && out->kind != CALM_ROPE_YARN;
    out->rotary += out->odd;
    if (out->rotary == 0 || out->rotary % 2 != 0)
        return calm_fail(ctx, CALM_EFORMAT,
                         "%s: rotary embedding of %zu of %s %zu channels: expected an even number, at least 2",
                         from->path, out->rotary, config->latent.rope ? "qk_rope_head_dim" : "head_dim", width);
    return CALM_OK;
}

/* Reads the length of the first training, before the context was extended. */
static calm_status read_original(calm_ctx *ctx, const source *from, const calm_config *config, calm_rope_config *out)
{
    /* Phi has the original length at the top level, which takes precedence over the object's. */
    const int64_t all = config->arch->phi_rope ? 4096 : (int64_t)config->max_positions;
    int64_t value;
    CALM_TRY(calm_json_need_int(ctx, from->path, from->described, "original_max_position_embeddings", &all, 1,
                                CALM_SIZE_LIMIT, &value));
    CALM_TRY(calm_json_need_int(ctx, from->path, from->root, "original_max_position_embeddings", &value, 1,
                                CALM_SIZE_LIMIT, &value));
    out->original = (double)value;
    return CALM_OK;
}

/* Reads a list of n factors, one for each pair of channels. */
static calm_status read_factors(calm_ctx *ctx, const source *from, const char *key, size_t n, const double **out)
{
    const calm_json *list = calm_json_get(from->described, key);
    double *values;
    if (calm_json_typeof(list) != CALM_JSON_ARRAY || calm_json_size(list) != n)
        return calm_fail(ctx, CALM_EFORMAT,
                         "%s: rope settings: \"%s\": expected %zu numbers (half the rotary channels)", from->path, key,
                         n);
    CALM_TRY(CALM_NEW(ctx, ctx->out, values, n));
    /* A factor divides a frequency: 0, negative numbers and NaN (the value of anything but a number) are refused. */
    for (size_t i = 0; i < n; i++) {
        values[i] = calm_json_number(calm_json_at(list, i), NAN);
        if (!(values[i] >= 1e-6 && values[i] <= FACTOR_MAX))
            return calm_fail(ctx, CALM_EFORMAT, "%s: rope settings: \"%s\"[%zu]: expected a number from 1e-6 to %g",
                             from->path, key, i, FACTOR_MAX);
    }
    *out = values;
    return CALM_OK;
}

/* Returns 0.1 scale ln(factor) + 1, arXiv 2309.00071. */
static double yarn_scale(double factor, double scale)
{
    return factor <= 1 ? 1 : 0.1 * scale * log(factor) + 1;
}

/* Reads the bounds of the ramp and the factor m of cos and sin (rope.h has the formulas). */
static calm_status read_yarn(calm_ctx *ctx, const source *from, const calm_config *config, calm_rope_config *out)
{
    /* The defaults are those of transformers; an absent factor is the ratio of the two lengths. */
    const double fast = 32, slow = 1, zero = 0, ratio = (double)config->max_positions / out->original;
    double scale, scale_all, m;
    /* yarn_bound() divides by ln theta. */
    if (out->theta <= 1)
        return calm_fail(ctx, CALM_EFORMAT, "%s: rope_type yarn: expected a rope_theta above 1, found %g", from->path,
                         out->theta);
    CALM_TRY(number(ctx, from, "factor", &ratio, 1e-6, FACTOR_MAX, &out->factor));
    CALM_TRY(number(ctx, from, "beta_fast", &fast, 1e-6, FACTOR_MAX, &out->beta_fast));
    CALM_TRY(number(ctx, from, "beta_slow", &slow, 1e-6, FACTOR_MAX, &out->beta_slow));
    CALM_TRY(number(ctx, from, "mscale", &zero, 0, FACTOR_MAX, &scale));
    CALM_TRY(number(ctx, from, "mscale_all_dim", &zero, 0, FACTOR_MAX, &scale_all));
    /* DeepSeek's pair of scales; other families have the plain one, or attention_factor, which takes precedence
     * below. */
    m = scale > 0 && scale_all > 0 ? yarn_scale(out->factor, scale) / yarn_scale(out->factor, scale_all)
                                   : yarn_scale(out->factor, 1);
    CALM_TRY(calm_config_switch(ctx, from->path, from->described, "truncate", true, &out->truncate));
    return number(ctx, from, "attention_factor", &m, 1e-6, FACTOR_MAX, &out->m);
}

/* Reads two lists of factors and the factor m of cos and sin. */
static calm_status read_longrope(calm_ctx *ctx, const source *from, const calm_config *config, calm_rope_config *out)
{
    const double ratio = (double)config->max_positions / out->original;
    CALM_TRY(number(ctx, from, "factor", &ratio, 1e-6, FACTOR_MAX, &out->factor));
    /* The paper's formula: attention gets sharper with the log of the length; ln 1 = 0 would divide by zero. */
    const double m = out->factor > 1 && out->original > 1 ? sqrt(1 + log(out->factor) / log(out->original)) : 1;
    CALM_TRY(read_factors(ctx, from, "long_factor", out->rotary / 2, &out->long_factor));
    CALM_TRY(read_factors(ctx, from, "short_factor", out->rotary / 2, &out->short_factor));
    CALM_TRY(number(ctx, from, "attention_factor", &m, 1e-6, FACTOR_MAX, &out->m));
    out->m_long = out->m;
    return CALM_OK;
}

/* Reads the factor and the two frequencies of its ramp, none of which has a default. */
static calm_status read_llama3(calm_ctx *ctx, const source *from, calm_rope_config *out)
{
    CALM_TRY(number(ctx, from, "factor", NULL, 1e-6, FACTOR_MAX, &out->factor));
    CALM_TRY(number(ctx, from, "low_freq_factor", NULL, 1e-6, FACTOR_MAX, &out->low_freq));
    CALM_TRY(number(ctx, from, "high_freq_factor", NULL, 1e-6, FACTOR_MAX, &out->high_freq));
    /* rope.c interpolates between the two. */
    if (out->high_freq < out->low_freq)
        return calm_fail(ctx, CALM_EFORMAT,
                         "%s: rope settings: high_freq_factor %g, expected at least low_freq_factor %g", from->path,
                         out->high_freq, out->low_freq);
    return CALM_OK;
}

/* Reads the settings of the kind; `theta` is that of the top level. */
static calm_status read_kind(calm_ctx *ctx, const source *from, double theta, const calm_config *config,
                            calm_rope_config *out)
{
    *out = (calm_rope_config){.factor = 1, .m = 1, .m_long = 1, .m_all = 1, .neighbours = config->arch->neighbours};
    if (calm_json_typeof(from->described) != CALM_JSON_NULL && calm_json_typeof(from->described) != CALM_JSON_OBJECT)
        return calm_fail(ctx, CALM_EFORMAT, "%s: rope settings: expected an object", from->path);
    CALM_TRY(check_names(ctx, from, config->arch));
    CALM_TRY(find_kind(ctx, from, config, out));
    CALM_TRY(number(ctx, from, "rope_theta", &theta, 1, 1e12, &out->theta));
    CALM_TRY(read_rotary(ctx, from, config, out));
    CALM_TRY(read_original(ctx, from, config, out));
    if (out->kind == CALM_ROPE_LLAMA3)
        return read_llama3(ctx, from, out);
    if (out->kind == CALM_ROPE_YARN)
        return read_yarn(ctx, from, config, out);
    if (out->kind == CALM_ROPE_LONGROPE)
        return read_longrope(ctx, from, config, out);
    if (out->kind == CALM_ROPE_PROPORTIONAL)
        return number(ctx, from, "factor", &(double){1}, 1e-6, FACTOR_MAX, &out->factor);
    if (out->kind == CALM_ROPE_LINEAR || out->kind == CALM_ROPE_DYNAMIC)
        CALM_TRY(number(ctx, from, "factor", NULL, 1e-6, FACTOR_MAX, &out->factor));
    if (is_ntk(from)) {
        out->theta *= out->factor;
        out->factor = pow(out->factor, 2 / (double)(out->rotary - out->odd));
    }
    /* The stretched theta has the exponent r / (r - 2). */
    if (out->kind == CALM_ROPE_DYNAMIC && out->rotary - out->odd < 3)
        return calm_fail(ctx, CALM_EFORMAT, "%s: rope_type dynamic: expected at least 3 rotary channels, found %zu",
                         from->path, out->rotary - out->odd);
    return CALM_OK;
}

/* Reads one embedding from its object.  DeepSeek's second scale counts for every kind except the plain one. */
static calm_status read_one(calm_ctx *ctx, const source *from, double theta, const calm_config *config,
                            calm_rope_config *out)
{
    double scale_all;
    CALM_TRY(read_kind(ctx, from, theta, config, out));
    CALM_TRY(number(ctx, from, "mscale_all_dim", &(double){0}, 0, FACTOR_MAX, &scale_all));
    if (out->kind != CALM_ROPE_DEFAULT && scale_all > 0)
        out->m_all = yarn_scale(out->factor, scale_all);
    return CALM_OK;
}

/* Checks rope_parameters of a family whose blocks differ: it holds one object for each kind of attention and nothing
 * else. */
static calm_status check_kinds(calm_ctx *ctx, const char *path, const calm_json *parameters, const calm_arch *arch,
                               bool differ)
{
    const char *key;
    const calm_json *value;
    if (!differ)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"rope_parameters\" by kind of attention is not known for %s",
                         path, arch->name);
    for (void *iter = NULL; calm_json_next(parameters, &iter, &key, &value);)
        if (strcmp(key, "full_attention") != 0 && strcmp(key, "sliding_attention") != 0 &&
            calm_json_typeof(value) != CALM_JSON_NULL)
            return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: rope settings: \"%s\" is not known", path, key);
    return CALM_OK;
}

/* Checks "rope_scaling" of families with two embeddings, which transformers applies to plain objects without changing
 * their "rope_type". */
static calm_status check_old_word(calm_ctx *ctx, const char *path, const calm_json *scaling, const calm_arch *arch)
{
    const char *type = calm_json_string(calm_json_get(scaling, "type"), "default");
    if (strcmp(type, "default") == 0 || calm_json_get(scaling, "rope_type") ||
        !(arch->local_rope || arch->local_theta_key))
        return CALM_OK;
    return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"rope_scaling\": found \"type\" \"%s\", expected \"rope_type\", "
                     "the only word for it that transformers reads for %s", path, type, arch->name);
}

calm_status calm_config_rope(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    const calm_json *scaling = calm_json_get(root, "rope_scaling"),
                    *parameters = calm_json_get(root, "rope_parameters");
    /* An empty rope_scaling object means the same as null. */
    const bool classic = calm_json_typeof(scaling) == CALM_JSON_OBJECT ? calm_json_size(scaling) > 0
                                                                       : calm_json_typeof(scaling) != CALM_JSON_NULL;
    const calm_json *full = calm_json_get(parameters, "full_attention"),
                    *sliding = calm_json_get(parameters, "sliding_attention");
    const source global = {path, root,
                           classic           ? scaling
                           : full || sliding ? full
                                             : parameters},
                 inner = {path, root, sliding || !(config->arch->scales_both && classic) ? sliding : scaling};
    const calm_arch *arch = config->arch;
    double theta = arch->default_rope_theta, local = arch->default_local_theta;
    /* The top level first; read_one() lets the object override it. */
    CALM_TRY(calm_json_need_number(ctx, path, root, arch->theta_key ? arch->theta_key : "rope_theta", &theta, 1, 1e12,
                                   &theta));
    if (arch->local_theta_key)
        CALM_TRY(calm_json_need_number(ctx, path, root, arch->local_theta_key, &local, 1, 1e12, &local));
    CALM_TRY(check_old_word(ctx, path, scaling, arch));
    /* Like in transformers, the top level's theta and scaling only apply to full blocks. */
    if (arch->local_rope)
        local = arch->default_rope_theta;
    if (arch->local_rope && calm_json_size(parameters) && !full && !sliding)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"rope_parameters\": expected \"full_attention\" and "
                         "\"sliding_attention\" in it for %s", path, arch->name);
    if (full || sliding)
        CALM_TRY(check_kinds(ctx, path, parameters, arch, local > 0));
    CALM_TRY(read_one(ctx, &global, theta, config, &config->rope[CALM_ROPE_GLOBAL]));
    return local > 0 ? read_one(ctx, &inner, local, config, &config->rope[CALM_ROPE_LOCAL]) : CALM_OK;
}

/* ---- blocks with heads of different widths ---- */

calm_status calm_config_block_ropes(calm_ctx *ctx, const char *path, const calm_json *root, double share,
                                    calm_config *config)
{
    const calm_json *parameters = calm_json_get(root, "rope_parameters");
    const bool none = calm_json_typeof(parameters) == CALM_JSON_NULL;
    static const char *const classic[] = {"rope_scaling", "rope_theta"};
    /* There is no older spelling; a theta next to the objects, which have their own, is ignored. */
    for (size_t i = 0; i < (none ? 2 : 1); i++)
        if (calm_json_typeof(calm_json_get(root, classic[i])) != CALM_JSON_NULL)
            return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"%s\" is not known for %s; expected "
                             "\"rope_parameters\"", path, classic[i], config->arch->name);
    /* The default of transformers' class. */
    if (none) {
        config->rope[CALM_ROPE_GLOBAL].kind = CALM_ROPE_PROPORTIONAL;
        config->rope[CALM_ROPE_GLOBAL].share = share;
    }
    for (size_t i = 0; i < config->n_blocks; i++) {
        const bool slide = calm_config_slides(config, i);
        const char *type = slide ? "sliding_attention" : "full_attention";
        calm_rope_config *rope = &config->rope[slide ? CALM_ROPE_LOCAL : CALM_ROPE_GLOBAL];
        if (!none && calm_json_typeof(calm_json_get(parameters, type)) != CALM_JSON_OBJECT)
            return calm_fail(ctx, CALM_EFORMAT, "%s: \"rope_parameters\": expected an object \"%s\", which block %zu "
                             "has", path, type, i);
        /* The settings were read by the model's usual head width, which also determines the length of lists of
         * factors. */
        if (rope->kind == CALM_ROPE_LONGROPE || rope->kind == CALM_ROPE_DYNAMIC)
            return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"rope_parameters\": \"%s\": rope_type longrope or dynamic "
                             "is not supported for %s", path, type, config->arch->name);
        rope->rotary = config->shapes[i].head_dim;
    }
    return CALM_OK;
}

/* ---- settings of some families ---- */

calm_status calm_config_rope_object(calm_ctx *ctx, const char *path, const calm_json *root, const calm_json **out)
{
    const calm_json *scaling = calm_json_get(root, "rope_scaling");
    *out = calm_json_size(scaling) ? scaling : calm_json_get(root, "rope_parameters");
    return calm_json_expect(ctx, *out, CALM_JSON_OBJECT, "%s: \"rope_parameters\"", path);
}

calm_status calm_config_other_theta(calm_ctx *ctx, const char *path, const calm_json *root, const calm_config *config)
{
    const double theta = config->rope[CALM_ROPE_GLOBAL].theta;
    double ignored;
    CALM_TRY(calm_json_need_number(ctx, path, root, "rope_theta", &theta, 1, 1e12, &ignored));
    if (ignored < theta || ignored > theta)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"rope_theta\": found %g, expected the %g of "
                         "\"%s\" or \"rope_parameters\", which is what counts", path, ignored, theta,
                         config->arch->theta_key);
    return CALM_OK;
}

calm_status calm_config_rope_scales(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    calm_rope_config *rope = &config->rope[CALM_ROPE_GLOBAL];
    const calm_json *described;
    double of_short, of_long;
    if (rope->kind == CALM_ROPE_DEFAULT)    /* the two factors are ignored */
        return CALM_OK;
    CALM_TRY(calm_config_rope_object(ctx, path, root, &described));
    CALM_TRY(calm_json_need_number(ctx, path, described, "short_mscale", &rope->m, 1e-6, 1e6, &of_short));
    CALM_TRY(calm_json_need_number(ctx, path, described, "long_mscale", &of_short, 1e-6, 1e6, &of_long));
    /* Tables of the other kinds do not depend on the length of the text. */
    if (of_short != of_long && rope->kind != CALM_ROPE_LONGROPE)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: rope settings: \"short_mscale\" %g, \"long_mscale\" %g: "
                         "expected the same number, as rope_type is not longrope", path, of_short, of_long);
    /* transformers 5 computes frequencies without the length of the text, and so uses the short factors for all. */
    rope->m = of_short;
    rope->m_long = of_long;
    rope->long_factor = rope->short_factor;
    return CALM_OK;
}

calm_status calm_config_rotary_width(calm_ctx *ctx, const char *path, const calm_json *root, const char *key,
                                     calm_config *config)
{
    const calm_json *share = calm_json_get(calm_json_get(root, "rope_parameters"), "partial_rotary_factor");
    calm_rope_config *rope = &config->rope[CALM_ROPE_GLOBAL];
    const int64_t shared = (int64_t)(rope->rotary - rope->odd);
    int64_t rotary = shared;
    CALM_TRY(calm_json_need_int(ctx, path, root, key, &rotary, 2, (int64_t)config->head_dim, &rotary));
    if (rotary % 2 != 0 && rotary != shared)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"%s\": expected an even number, found %lld", path, key,
                         (long long)rotary);
    /* transformers prefers the share where both are present; a contradiction is refused. */
    if (rotary != shared && (share || calm_json_get(root, "partial_rotary_factor")))
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: \"%s\": expected %lld (partial_rotary_factor of head_dim), "
                         "found %lld", path, key, (long long)shared, (long long)rotary);
    rope->odd = rotary % 2 != 0;
    rope->rotary = (size_t)rotary + rope->odd;
    return CALM_OK;
}
