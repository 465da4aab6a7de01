/* Check: the entry of GPTQ, and the modules that it quantizes. */
#include <stdio.h>
#include <string.h>

#include "ptq/check/check_state.h"
#include "ptq/text/regex.h"
#include "ptq/arch/arch.h"
#include "ptq/quant/pack.h"

/* ---- fused modules ---- */

/* A calm_check_fused_fn for GPTQ's rules. */
static calm_status fused(calm_checking *c, const void *user, const char *name, bool *hit, calm_qformat_scheme *scheme)
{
    (void)user;
    return calm_qformat_find(c->ctx, c->reader, NULL, name, hit, scheme);
}

/* ---- GPTQ ---- */

static calm_status check_two_configs(calm_checking *c)
{
    static const char *const keys[] = {"bits", "group_size", "desc_act", "sym", "checkpoint_format"};
    CALM_SCOPED_JSON(other);
    char *path;
    CALM_TRY(calm_path_join(c->ctx, c->ctx->scratch, &path, c->path, "quantize_config.json"));
    if (!calm_path_exists(path))
        return CALM_OK;
    if (calm_json_read(c->ctx, path, (size_t)16 << 20, &other) != CALM_OK)
        return calm_check_add_failure(c, CALM_CHECK_RULE_TWO_CONFIGS, "quantize_config.json");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const calm_json *a = calm_json_get(c->entry, keys[i]), *b = calm_json_get(other, keys[i]);
        const calm_json_type type = calm_json_typeof(a);
        bool same = !a || !b || type == calm_json_typeof(b);
        if (same && a && b)
            same = calm_json_int(a, 0) == calm_json_int(b, 0) && calm_json_bool(a, false) == calm_json_bool(b, false) &&
                   strcmp(calm_json_string(a, ""), calm_json_string(b, "")) == 0;
        if (!same)
            CALM_TRY(calm_check_add(c, CALM_CHECK_RULE_TWO_CONFIGS, "quantize_config.json",
                                    "%s is another one in config.json", keys[i]));
    }
    return CALM_OK;
}

/* Returns true if the entry names "gptqmodel:0.9.0" or later: readers then accept asymmetric weights in v1. */
static bool names_new_quantizer(const calm_checking *c)
{
    const calm_json *list = calm_json_get(calm_json_get(c->entry, "meta"), "quantizer");
    int major = 0, minor = 0;
    const char *first = calm_json_string(calm_json_typeof(list) == CALM_JSON_ARRAY ? calm_json_at(list, 0) : list, "");
    return sscanf(first, "gptqmodel:%9d.%9d", &major, &minor) == 2 && (major > 0 || minor >= 9);
}

/* Reports a rule of `dynamic` that matches no module. */
static calm_status check_rule(calm_checking *c, const char *key)
{
    const char *pattern = strncmp(key, "+:", 2) == 0 || strncmp(key, "-:", 2) == 0 ? key + 2 : key;
    calm_regex *regex;
    bool hit = false;
    if (calm_regex_new(c->ctx, "dynamic", pattern, strlen(pattern), &regex) != CALM_OK)
        return calm_check_add_failure(c, CALM_CHECK_RULE_GPTQ_CONFIG, "dynamic");
    calm_regex_limit(regex, CALM_NAME_STEPS);
    calm_status status = CALM_OK;
    for (size_t i = 0; i < c->n_modules && !hit && status == CALM_OK; i++)
        status = calm_regex_matches_prefix(c->ctx, regex, c->modules[i].name, &hit);
    if (!hit && status == CALM_OK && c->model_known && c->layout.head) /* a tied head is no module here */
        status = calm_regex_matches_prefix(c->ctx, regex, c->layout.head, &hit);
    calm_regex_free(regex);
    if (status != CALM_OK)
        return calm_check_add_failure(c, CALM_CHECK_RULE_GPTQ_CONFIG, "dynamic");
    return hit ? CALM_OK : calm_check_add(c, CALM_CHECK_RULE_DYNAMIC_NOTHING, "dynamic", "\"%.256s\"", key);
}

static bool is_elsewhere(const calm_checking *c)
{
    static const char *const layouts[] = {"marlin", "marlin_24", "bitblas", "gemm", "qqq", "ipex", "exllamav3"},
                             *const words[] = {"int64", "int16", "int8"};
    return CALM_CHECK_LISTED(calm_json_string(calm_json_get(c->entry, "checkpoint_format"), ""), layouts)
           || CALM_CHECK_LISTED(calm_json_string(calm_json_get(c->entry, "pack_dtype"), ""), words);
}

/* Checks desc_act with groups, in the entry or in a rule of `dynamic`, which inherits members of the entry. */
static calm_status check_order(calm_checking *c, const char *where, const calm_json *of)
{
    const calm_json *own = calm_json_get(of, "group_size"), *ordered = calm_json_get(of, "desc_act");
    const long long group = calm_json_int(own ? own : calm_json_get(c->entry, "group_size"), -1);
    if (group <= 0 || !calm_json_bool(ordered, false))
        return CALM_OK;
    CALM_TRY(calm_check_add(c, CALM_CHECK_RULE_DESC_ACT, where, "desc_act is true, group_size %lld", group));
    return calm_check_add(c, CALM_CHECK_RULE_DESC_ACT_REFUSED, where, "desc_act is true, group_size %lld", group);
}

static calm_status check(calm_checking *c)
{
    const calm_json *dynamic = calm_json_get(c->entry, "dynamic"), *value;
    const char *format = calm_json_string(calm_json_get(c->entry, "checkpoint_format"), "gptq"), *key;
    CALM_TRY(calm_check_open(c, CALM_CHECK_RULE_GPTQ_CONFIG, is_elsewhere));
    CALM_TRY(check_two_configs(c));
    if (!calm_json_bool(calm_json_get(c->entry, "sym"), true) && strcmp(format, "gptq") == 0 && !names_new_quantizer(c))
        CALM_TRY(calm_check_add(c, CALM_CHECK_RULE_ASYMMETRIC_V1, "quantization_config",
                                "sym is false, checkpoint_format is gptq"));
    CALM_TRY(check_order(c, "quantization_config", c->entry));
    if (!c->reader)
        return CALM_OK;
    if (c->n_modules && calm_json_size(dynamic) > CALM_CHECK_MATCHES / c->n_modules)
        return calm_check_add(c, CALM_CHECK_RULE_TARGETS_MANY, "dynamic", "%zu rules, %zu modules",
                              calm_json_size(dynamic), c->n_modules);
    for (void *iter = NULL; calm_json_next(dynamic, &iter, &key, &value);) {
        CALM_TRY(check_rule(c, key));
        if (strncmp(key, "-:", 2) != 0)
            CALM_TRY(check_order(c, "dynamic", value));
    }
    if (calm_json_size(dynamic))
        CALM_TRY(calm_check_add(c, CALM_CHECK_RULE_DYNAMIC, "dynamic", "%zu rules", calm_json_size(dynamic)));
    CALM_TRY(calm_check_resolve(c, CALM_CHECK_RULE_GPTQ_CONFIG));
    return c->resolved ? calm_check_fusion(c, CALM_CHECK_RULE_DYNAMIC_FUSED, fused, NULL) : CALM_OK;
}

/* ---- values ---- */

/* Checks that the zero points of a symmetric weight are all the middle code; v1 stores them minus one. */
static calm_status check_qzeros(calm_checking *c, const calm_check_module *module, const calm_tensor *zeros)
{
    const bool v2 = strcmp(calm_json_string(calm_json_get(c->entry, "checkpoint_format"), "gptq"), "gptq_v2") == 0;
    const int bits = module->scheme.bits;
    const size_t words = calm_pack_words(module->out, bits), rows = zeros->n_dims == 2 ? zeros->shape[0] : 0;
    const uint8_t middle = (uint8_t)((1 << (bits - 1)) - !v2), most = (uint8_t)((1 << bits) - 1);
    uint8_t *codes;
    uint32_t *row;
    size_t other = 0, wraps = 0;
    if (zeros->dtype != CALM_I32 || zeros->n_elements != rows * words || !rows)
        return CALM_OK;
    CALM_TRY(CALM_NEW(c->ctx, c->ctx->scratch, codes, module->out));
    CALM_TRY(CALM_NEW(c->ctx, c->ctx->scratch, row, words));
    for (size_t r = 0; r < rows; r++) {
        memcpy(row, zeros->data + 4 * r * words, 4 * words);
        calm_unpack_row(row, module->out, bits, codes);
        for (size_t i = 0; i < module->out; i++) {
            other += codes[i] != middle;
            wraps += codes[i] == most;
        }
    }
    calm_safetensors_release(c->set, zeros);
    if (module->scheme.symmetric && other)
        return calm_check_add(c, CALM_CHECK_RULE_SYMMETRIC_ZEROS, module->name, "%zu of %zu zeros are not stored as %d",
                              other, rows * module->out, middle);
    return !v2 && wraps
               ? calm_check_add(c, CALM_CHECK_RULE_ZERO_WRAPS, module->name, "%zu of %zu", wraps, rows * module->out)
               : CALM_OK;
}

static calm_status check_index(calm_checking *c, const calm_check_module *module, const calm_tensor *index)
{
    const size_t group = module->scheme.group ? module->scheme.group : module->in,
                 groups = (module->in + group - 1) / group;
    size_t order = 0, range = 0;
    if (index->dtype != CALM_I32 || index->n_elements != module->in)
        return CALM_OK;
    for (size_t i = 0; i < module->in; i++) {
        int32_t value;
        memcpy(&value, index->data + 4 * i, sizeof value);
        order += value != (int32_t)(i / group);
        range += value < 0 || (size_t)value >= groups;
    }
    if (range)
        return calm_check_add(c, CALM_CHECK_RULE_INDEX_RANGE, module->name, "%zu of %zu columns; there are %zu groups",
                              range, module->in, groups);
    if (order && !(module->scheme.layout & CALM_GPTQ_ORDERED))
        return calm_check_add(c, CALM_CHECK_RULE_INDEX_ORDER, module->name, "%zu of %zu columns", order, module->in);
    return CALM_OK;
}

static calm_status check_values(calm_checking *c, const calm_check_module *module)
{
    const calm_tensor *zeros = calm_check_part(c, module, "qzeros"), *index = calm_check_part(c, module, "g_idx");
    const calm_tensor *codes = calm_check_part(c, module, "qweight");
    if (zeros)
        CALM_TRY(check_qzeros(c, module, zeros));
    if (index)
        CALM_TRY(check_index(c, module, index));
    if (!codes || codes->n_dims != 2)
        return CALM_OK;
    return calm_check_last_row(c, codes, codes->shape[0], codes->shape[1], module->in * (size_t)module->scheme.bits);
}

const calm_check_format calm_check_format_gptq = {.entry = check, .values = check_values};
