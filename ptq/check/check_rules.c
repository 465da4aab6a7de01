/* Check: the table of rules. */
#include "ptq/check/check_rules.h"

#include <stdio.h>
#include <string.h>

/* Abbreviations of rules.def. */
enum {
    V = 1 << CALM_CHECK_VLLM | 1 << CALM_CHECK_VLLM_CPU | 1 << CALM_CHECK_VLLM_ROCM,
    S = 1 << CALM_CHECK_SGLANG,
    T = 1 << CALM_CHECK_TRANSFORMERS,
    L = 1 << CALM_CHECK_LLAMACPP,
    M = 1 << CALM_CHECK_MLX,
    ALL = V | S | T | L | M
};
#define ALWAYS false
#define ASKED true

const calm_check_rule_info *calm_check_rules(size_t *n)
{
    static const calm_check_rule_info all[] = {
#define CALM_CHECK_RULE(id, name, severity, scope, engines, title, behaviour, remedy)                              \
    {#id, CALM_SEVERITY_##severity, scope, engines, title, behaviour, remedy},
#include "ptq/check/rules.def"
#undef CALM_CHECK_RULE
    };
    *n = sizeof all / sizeof *all;
    return all;
}

const char *calm_severity_name(calm_severity severity)
{
    static const char *const names[] = {"note", "warning", "error"};
    return names[severity];
}

const char *calm_check_engine_name(calm_check_engine engine)
{
    static const char *const names[] = {"any",          "vllm",     "vllm-cpu", "vllm-rocm", "sglang",
                                        "transformers", "llamacpp", "mlx"};
    return names[engine];
}

const char *calm_check_engines(unsigned engines, char text[64])
{
    int used = 0;
    if (engines == ALL)
        return strcpy(text, "all");
    text[0] = 0;
    for (calm_check_engine t = CALM_CHECK_VLLM; t <= CALM_CHECK_MLX; t++) {
        const bool said = t > CALM_CHECK_VLLM && t <= CALM_CHECK_VLLM_ROCM && engines & 1u << CALM_CHECK_VLLM;
        if (engines & 1u << t && !said)
            used += snprintf(text + used, 64 - (size_t)used, "%s%s", used ? ", " : "", calm_check_engine_name(t));
    }
    return text;
}
