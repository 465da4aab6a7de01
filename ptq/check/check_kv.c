/* Check: the quantized KV cache: kv_cache_scheme of the entry, and k_scale and v_scale of every attention. */
#include "ptq/check/check_state.h"

#include <math.h>
#include <string.h>

#include "ptq/layers/kv_cache.h"

static const calm_json *scheme_of(const calm_checking *c)
{
    const calm_json *scheme = calm_json_get(c->entry, "kv_cache_scheme");
    return calm_json_typeof(scheme) == CALM_JSON_NULL ? NULL : scheme;
}

/* ---- the scheme, as vLLM's validate_kv_cache_scheme and SGLang check it ---- */

/* Checks that a member is one of two words; other NULL: that it is `word`. */
static calm_status need_word(calm_checking *c, const calm_json *scheme, const char *key, const char *word,
                             const char *other)
{
    const char *found = calm_json_string(calm_json_get(scheme, key), NULL);
    if (found && (strcmp(found, word) == 0 || (other && strcmp(found, other) == 0)))
        return CALM_OK;
    return calm_check_add(c, CALM_CHECK_RULE_KV_SCHEME, "quantization_config", "kv_cache_scheme.%s is %s%.32s%s, "
                          "expected \"%s\"%s%s%s", key, found ? "\"" : "", found ? found : "missing",
                          found ? "\"" : "", word, other ? " or \"" : "", other ? other : "", other ? "\"" : "");
}

static calm_status check_scheme(calm_checking *c, const calm_json *scheme)
{
    if (calm_json_typeof(scheme) != CALM_JSON_OBJECT)
        return calm_check_add(c, CALM_CHECK_RULE_KV_SCHEME, "quantization_config", "kv_cache_scheme is %s, expected an "
                              "object or null", calm_json_type_name(calm_json_typeof(scheme)));
    const calm_json *bits = calm_json_get(scheme, "num_bits"), *symmetric = calm_json_get(scheme, "symmetric");
    CALM_TRY(need_word(c, scheme, "type", "float", NULL));
    CALM_TRY(need_word(c, scheme, "strategy", "tensor", "attn_head"));
    if (calm_json_int(bits, -1) != 8)
        CALM_TRY(calm_check_add(c, CALM_CHECK_RULE_KV_SCHEME, "quantization_config",
                                "kv_cache_scheme.num_bits is %lld, expected 8", (long long)calm_json_int(bits, -1)));
    if (symmetric && !calm_json_bool(symmetric, true))
        CALM_TRY(calm_check_add(c, CALM_CHECK_RULE_KV_SCHEME, "quantization_config",
                                "kv_cache_scheme.symmetric is false: no engine has zero points in its cache"));
    return CALM_OK;
}

/* ---- the scales ---- */

/* Checks that a scale is one number, or with the strategy attn_head one per kv head. */
static calm_status check_shape(calm_checking *c, const calm_check_member *at, bool by_head)
{
    const calm_tensor *t = at->tensor;
    const bool right = t->n_elements == 1 || (by_head && c->model_known && t->n_elements == c->model.n_kv);
    if (!right)
        return calm_check_add(c, CALM_CHECK_RULE_KV_SHAPE, t->name, "holds %zu numbers, expected 1%s", t->n_elements,
                              by_head ? " or one per kv head" : "");
    return calm_dtype_is_float(t->dtype)
               ? CALM_OK : calm_check_add(c, CALM_CHECK_RULE_KV_SHAPE, t->name, "is %s, expected floats",
                                          calm_dtype_name(t->dtype));
}

static calm_status check_values(calm_checking *c, const calm_check_member *at)
{
    float values[256];
    const size_t n = calm_size_min(at->tensor->n_elements, sizeof values / sizeof *values);
    if (!calm_dtype_is_float(at->tensor->dtype) || !n)
        return CALM_OK;
    CALM_TRY(calm_to_f32(c->ctx, at->tensor->dtype, at->tensor->data, n, values));
    for (size_t i = 0; i < n; i++)
        if (!(isfinite(values[i]) && values[i] > 0))
            return calm_check_add(c, CALM_CHECK_RULE_KV_VALUE, at->tensor->name, "is %g, expected a number above 0",
                                  (double)values[i]);
    return CALM_OK;
}

/* Returns true for the names of a scale: in the attention, or in the projection whose output is cached. */
static bool is_scale(const calm_check_member *at, char of)
{
    const char *suffix = at->suffix;
    const size_t length = strlen(at->module);
    const char end[] = {'.', of, '_', 'p', 'r', 'o', 'j', '\0'};
    if (suffix[0] == of && strcmp(suffix + 1, "_scale") == 0)
        return true;
    return length > 7 && strcmp(at->module + length - 7, end) == 0 && strcmp(suffix, "output_scale") == 0;
}

/* Returns the length of the attention's name: "model.layers.0.self_attn", also from its k_proj. */
static size_t stem_length(const calm_check_member *at)
{
    const size_t length = strlen(at->module);
    const bool part = length > 7 && strcmp(at->module + length - 5, "_proj") == 0 && at->module[length - 7] == '.';
    return part ? length - 7 : length;
}

/* Returns true if the attention of this member has the other scale too. */
static bool has_other(const calm_checking *c, const calm_check_member *at, char other)
{
    const size_t stem = stem_length(at);
    for (size_t i = 0; i < c->n_members; i++)
        if (is_scale(&c->members[i], other) && stem_length(&c->members[i]) == stem &&
            strncmp(c->members[i].module, at->module, stem) == 0)
            return true;
    return false;
}

/* Returns the number of blocks with a KV cache; for an unknown model the number with a scale. */
static size_t n_caches(const calm_checking *c, size_t found)
{
    size_t n = 0;
    for (size_t block = 0; c->model_known && block < c->model.n_blocks; block++)
        n += calm_kv_has(&c->model, block);
    return c->model_known ? n : found;
}

calm_status calm_check_cache(calm_checking *c)
{
    const calm_json *scheme = scheme_of(c);
    const char *strategy = calm_json_string(calm_json_get(scheme, "strategy"), "tensor");
    const bool by_head = strcmp(strategy, "attn_head") == 0;
    const bool dynamic = calm_json_bool(calm_json_get(scheme, "dynamic"), false);
    size_t n = 0;
    if (scheme)
        CALM_TRY(check_scheme(c, scheme));
    for (size_t i = 0; i < c->n_members; i++) {
        const calm_check_member *at = &c->members[i];
        const bool k = is_scale(at, 'k'), v = is_scale(at, 'v');
        if (!k && !v)
            continue;
        n += k;
        CALM_TRY(check_shape(c, at, by_head));
        CALM_TRY(check_values(c, at));
        if (!has_other(c, at, k ? 'v' : 'k'))
            CALM_TRY(calm_check_add(c, CALM_CHECK_RULE_KV_HALF, at->tensor->name, "has no %c_scale with it",
                                    k ? 'v' : 'k'));
    }
    const size_t blocks = n_caches(c, n);
    if (!scheme || dynamic || c->partial || n >= blocks)
        return CALM_OK;
    return calm_check_add(c, CALM_CHECK_RULE_KV_MISSING, "quantization_config", "kv_cache_scheme is there, and %zu of "
                          "%zu blocks with keys and values have a k_scale", n, blocks);
}
