/* Check: the entry of AWQ, and the modules that it quantizes. */
#include <strings.h>

#include "ptq/check/check_state.h"

/* Returns true for AutoAWQ's other layouts and symmetric weights: separate rules say which engines do not read them. */
static bool is_elsewhere(const calm_checking *c)
{
    static const char *const versions[] = {"gemv", "gemv_fast", "marlin", "exllama", "ipex", "llm-awq"};
    const char *version = calm_json_string(calm_json_get(c->entry, "version"), "gemm");
    bool other = !calm_json_bool(calm_json_get(c->entry, "zero_point"), true);
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++)
        other |= strcasecmp(version, versions[i]) == 0;
    return other;
}

static calm_status check(calm_checking *c)
{
    const char *version = calm_json_string(calm_json_get(c->entry, "version"), "gemm");
    const calm_json *list = calm_json_get(c->entry, "modules_to_not_convert");
    CALM_TRY(calm_check_open(c, CALM_CHECK_RULE_AWQ_CONFIG, is_elsewhere));
    if (strcasecmp(version, "gemm") != 0)
        CALM_TRY(
            calm_check_add(c, CALM_CHECK_RULE_AWQ_VERSION, "quantization_config", "version is \"%.32s\"", version));
    if (!calm_json_bool(calm_json_get(c->entry, "zero_point"), true))
        CALM_TRY(calm_check_add(c, CALM_CHECK_RULE_AWQ_ZERO_POINT, "quantization_config", "zero_point is false"));
    if (!c->reader)
        return CALM_OK;
    if (c->n_modules && calm_json_size(list) > 20 * CALM_CHECK_MATCHES / c->n_modules)
        return calm_check_add(c, CALM_CHECK_RULE_TARGETS_MANY, "modules_to_not_convert", "%zu names, %zu modules",
                              calm_json_size(list), c->n_modules);
    CALM_TRY(calm_check_resolve(c, CALM_CHECK_RULE_AWQ_CONFIG));
    return c->resolved ? calm_check_fusion(c, CALM_CHECK_RULE_FUSED_NAME, NULL, NULL) : CALM_OK;
}

const calm_check_format calm_check_format_awq = {.entry = check};
