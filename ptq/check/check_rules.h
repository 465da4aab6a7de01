/* The rules of the check (rules.def): severity, engines, what an engine does, and what the user can do. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* The engines; ptq/plan/engines.h has their limits. */
typedef enum calm_check_engine {
    CALM_CHECK_ANY,
    CALM_CHECK_VLLM,
    CALM_CHECK_VLLM_CPU,
    CALM_CHECK_VLLM_ROCM,
    CALM_CHECK_SGLANG,
    CALM_CHECK_TRANSFORMERS,
    CALM_CHECK_LLAMACPP,
    CALM_CHECK_MLX
} calm_check_engine;

/* Names in the order of calm_check_engine, as the values of an option. */
#define CALM_CHECK_ENGINE_NAMES "any|vllm|vllm-cpu|vllm-rocm|sglang|transformers|llamacpp|mlx"

/* Returns the name for calm_engine_find, "vllm"; static. */
const char *calm_check_engine_name(calm_check_engine engine);

typedef enum calm_severity { CALM_SEVERITY_NOTE, CALM_SEVERITY_WARNING, CALM_SEVERITY_ERROR } calm_severity;

/* Returns "note", "warning" or "error". */
const char *calm_severity_name(calm_severity severity);

typedef struct calm_check_rule_info {
    const char *id; /* "CT002"                                                       */
    calm_severity severity;
    bool asked;       /* applies only if the requested engine is one of `engines` */
    unsigned engines; /* set of 1 << calm_check_engine: the engines whose behaviour the rule describes */
    const char *title, *behaviour, *remedy; /* what is wrong; what the engine does; what the user can do */
} calm_check_rule_info;

/* Returns all rules in the order of rules.def; *n receives their number. */
const calm_check_rule_info *calm_check_rules(size_t *n);

/* Writes the names of a rule's engines to `text` and returns it: "vllm, sglang", or "all"; "vllm" includes vllm-cpu and
 * vllm-rocm. */
const char *calm_check_engines(unsigned engines, char text[64]);
