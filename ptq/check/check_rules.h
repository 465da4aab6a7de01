/* The rules of the check (rules.def): how severe each is, which engines it is about, what they do, what to do. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* The engines of ptq/plan/engines.h. */
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

/* Their names in that order, as the values of an option. */
#define CALM_CHECK_ENGINE_NAMES "any|vllm|vllm-cpu|vllm-rocm|sglang|transformers|llamacpp|mlx"

/* "vllm": the name in calm_engine_find.  Static. */
const char *calm_check_engine_name(calm_check_engine engine);

typedef enum calm_severity { CALM_SEVERITY_NOTE, CALM_SEVERITY_WARNING, CALM_SEVERITY_ERROR } calm_severity;

/* "error" */
const char *calm_severity_name(calm_severity severity);

typedef struct calm_check_rule_info {
    const char *id; /* "CT002"                                                       */
    calm_severity severity;
    bool asked;       /* applies only when the engine is one of `engines`              */
    unsigned engines; /* bit 1 << calm_check_engine for each whose behaviour it predicts */
    const char *title, *behaviour, *remedy;
} calm_check_rule_info;

/* All rules in the order of rules.def; *n their number. */
const calm_check_rule_info *calm_check_rules(size_t *n);

/* The names of a rule's engines in `text`: "vllm, sglang", or "all"; "vllm" is on every hardware.  Returns `text`. */
const char *calm_check_engines(unsigned engines, char text[64]);
