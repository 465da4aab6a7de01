/* Check: the entries of GPTQ and AWQ, and which modules they mean. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "ptq/check/check_state.h"
#include "ptq/io/regex.h"
#include "ptq/model/arch.h"

#define MOST_MATCHES ((size_t)2000000) /* modules times rules: seconds of matching */

/* ---- which modules ---- */

/* A calm_check_fused_fn. */
static calm_status fused(calm_checking *c, const void *user, const char *name, bool *hit, calm_qformat_scheme *scheme)
{
    (void)user;
    return calm_qformat_find(c->ctx, c->reader, NULL, name, hit, scheme);
}

/* All linears are quantized but those that the entry leaves out; nothing outside the blocks is. */
static calm_status resolve(calm_checking *c)
{
    for (size_t i = 0; i < c->n_modules; i++) {
        calm_check_module *module = &c->modules[i];
        const bool layout = c->model_known ? module->in_layout : module->stored;
        bool quantized;
        calm_qformat_scheme scheme;
        if (!module->linear || (!layout && !module->stored))
            continue;
        if (calm_qformat_find(c->ctx, c->reader, c->set, module->name, &quantized, &scheme) != CALM_OK)
            return calm_check_say_failure(c, CALM_RULE_GPTQ_CONFIG, module->name);
        if (!quantized && module->stored)
            CALM_TRY(calm_check_say(c, CALM_RULE_PART_EXTRA, module->name,
                                    "it stays float by config.json, but has quantized tensors"));
        module->quantized = quantized;
        module->scheme = scheme;
    }
    c->resolved = true;
    return CALM_OK;
}

/* ---- GPTQ ---- */

static calm_status check_two_configs(calm_checking *c, const calm_json *entry)
{
    static const char *const keys[] = {"bits", "group_size", "desc_act", "sym", "checkpoint_format"};
    char *path;
    calm_json *other;
    calm_status status = CALM_OK;
    CALM_TRY(calm_path_join(c->ctx, c->ctx->scratch, &path, c->path, "quantize_config.json"));
    if (!calm_path_exists(path))
        return CALM_OK;
    if (calm_json_read(c->ctx, path, (size_t)16 << 20, &other) != CALM_OK)
        return calm_check_say_failure(c, CALM_RULE_TWO_CONFIGS, "quantize_config.json");
    for (size_t i = 0; i < sizeof keys / sizeof *keys && status == CALM_OK; i++) {
        const calm_json *a = calm_json_get(entry, keys[i]), *b = calm_json_get(other, keys[i]);
        const calm_json_type type = calm_json_typeof(a);
        bool same = !a || !b || type == calm_json_typeof(b);
        if (same && a && b)
            same = calm_json_int(a, 0) == calm_json_int(b, 0) && calm_json_bool(a, false) == calm_json_bool(b, false) &&
                   strcmp(calm_json_string(a, ""), calm_json_string(b, "")) == 0;
        if (!same)
            status = calm_check_say(c, CALM_RULE_TWO_CONFIGS, "quantize_config.json",
                                    "%s is another one in config.json", keys[i]);
    }
    calm_json_free(other);
    return status;
}

/* "gptqmodel:0.9.0" or later: the readers that take v1 with zeros of their own. */
static bool names_new_quantizer(const calm_json *entry)
{
    const calm_json *list = calm_json_get(calm_json_get(entry, "meta"), "quantizer");
    int major = 0, minor = 0;
    const char *first = calm_json_string(calm_json_typeof(list) == CALM_JSON_ARRAY ? calm_json_at(list, 0) : list, "");
    return sscanf(first, "gptqmodel:%9d.%9d", &major, &minor) == 2 && (major > 0 || minor >= 9);
}

/* Does a rule of dynamic hit any module? */
static calm_status check_rule(calm_checking *c, const char *key)
{
    const char *pattern = strncmp(key, "+:", 2) == 0 || strncmp(key, "-:", 2) == 0 ? key + 2 : key;
    calm_regex *regex;
    bool hit = false;
    if (calm_regex_new(c->ctx, "dynamic", pattern, strlen(pattern), &regex) != CALM_OK)
        return calm_check_say_failure(c, CALM_RULE_GPTQ_CONFIG, "dynamic");
    calm_regex_limit(regex, CALM_NAME_STEPS);
    calm_status status = CALM_OK;
    for (size_t i = 0; i < c->n_modules && !hit && status == CALM_OK; i++)
        status = calm_regex_matches_prefix(c->ctx, regex, c->modules[i].name, &hit);
    if (!hit && status == CALM_OK && c->model_known && c->model.arch->names->head) /* lacking where it is tied */
        status = calm_regex_matches_prefix(c->ctx, regex, c->model.arch->names->head, &hit);
    calm_regex_free(regex);
    if (status != CALM_OK)
        return calm_check_say_failure(c, CALM_RULE_GPTQ_CONFIG, "dynamic");
    return hit ? CALM_OK : calm_check_say(c, CALM_RULE_DYNAMIC_NOTHING, "dynamic", "\"%.256s\"", key);
}

static calm_status check_dynamic(calm_checking *c, const calm_json *dynamic)
{
    const calm_json *value;
    const char *key;
    for (void *iter = NULL; calm_json_next(dynamic, &iter, &key, &value);)
        CALM_TRY(check_rule(c, key));
    if (calm_json_size(dynamic))
        CALM_TRY(calm_check_say(c, CALM_RULE_DYNAMIC, "dynamic", "%zu rules", calm_json_size(dynamic)));
    return CALM_OK;
}

bool calm_check_gptq_elsewhere(const calm_checking *c)
{
    static const char *const layouts[] = {"marlin", "marlin_24", "bitblas", "gemm", "qqq", "ipex", "exllamav3"},
                             *const words[] = {"int64", "int16", "int8"};
    const calm_json *entry = calm_json_get(c->config, "quantization_config");
    return calm_check_listed(calm_json_string(calm_json_get(entry, "checkpoint_format"), ""), layouts,
                             sizeof layouts / sizeof *layouts) ||
           calm_check_listed(calm_json_string(calm_json_get(entry, "pack_dtype"), ""), words,
                             sizeof words / sizeof *words);
}

calm_status calm_check_gptq(calm_checking *c)
{
    const calm_json *entry = calm_json_get(c->config, "quantization_config"),
                    *dynamic = calm_json_get(entry, "dynamic");
    const char *format = calm_json_string(calm_json_get(entry, "checkpoint_format"), "gptq");
    const bool reordered = calm_json_bool(calm_json_get(entry, "desc_act"), false);
    CALM_TRY(check_two_configs(c, entry));
    if (!calm_json_bool(calm_json_get(entry, "sym"), true) && strcmp(format, "gptq") == 0 &&
        !names_new_quantizer(entry))
        CALM_TRY(calm_check_say(c, CALM_RULE_ASYMMETRIC_V1, "quantization_config",
                                "sym is false, checkpoint_format is gptq"));
    if (reordered && calm_json_int(calm_json_get(entry, "group_size"), -1) > 0)
        CALM_TRY(calm_check_say(c, CALM_RULE_DESC_ACT, "quantization_config", "desc_act is true, group_size %lld",
                                (long long)calm_json_int(calm_json_get(entry, "group_size"), -1)));
    if (!c->reader)
        return CALM_OK;
    if (c->n_modules && calm_json_size(dynamic) > MOST_MATCHES / c->n_modules)
        return calm_check_say(c, CALM_RULE_TARGETS_MANY, "dynamic", "%zu rules, %zu modules", calm_json_size(dynamic),
                              c->n_modules);
    CALM_TRY(check_dynamic(c, dynamic));
    CALM_TRY(resolve(c));
    return c->resolved ? calm_check_fusion(c, CALM_RULE_DYNAMIC_FUSED, fused, NULL) : CALM_OK;
}

/* ---- AWQ ---- */

/* Layouts and symmetric weights that AutoAWQ has: rules of their own say who does not read them. */
bool calm_check_awq_elsewhere(const calm_checking *c)
{
    static const char *const versions[] = {"gemv", "gemv_fast", "marlin", "exllama", "ipex", "llm-awq"};
    const calm_json *entry = calm_json_get(c->config, "quantization_config");
    const char *version = calm_json_string(calm_json_get(entry, "version"), "gemm");
    bool other = !calm_json_bool(calm_json_get(entry, "zero_point"), true);
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++)
        other |= strcasecmp(version, versions[i]) == 0;
    return other;
}

calm_status calm_check_awq(calm_checking *c)
{
    const calm_json *entry = calm_json_get(c->config, "quantization_config");
    const char *version = calm_json_string(calm_json_get(entry, "version"), "gemm");
    const calm_json *list = calm_json_get(entry, "modules_to_not_convert");
    if (strcasecmp(version, "gemm") != 0)
        CALM_TRY(calm_check_say(c, CALM_RULE_AWQ_VERSION, "quantization_config", "version is \"%.32s\"", version));
    if (!calm_json_bool(calm_json_get(entry, "zero_point"), true))
        CALM_TRY(calm_check_say(c, CALM_RULE_AWQ_ZERO_POINT, "quantization_config", "zero_point is false"));
    if (!c->reader)
        return CALM_OK;
    if (c->n_modules && calm_json_size(list) > 20 * MOST_MATCHES / c->n_modules)
        return calm_check_say(c, CALM_RULE_TARGETS_MANY, "modules_to_not_convert", "%zu names, %zu modules",
                              calm_json_size(list), c->n_modules);
    CALM_TRY(resolve(c));
    return c->resolved ? calm_check_fusion(c, CALM_RULE_FUSED_NAME, NULL, NULL) : CALM_OK;
}
