/* Check: will engines take a quantized checkpoint, and read the weights that are meant?
 *
 * A directory (compressed-tensors, GPTQ, AWQ, MLX; calm's or not) or a GGUF file is read as engines read it; what they
 * would fail on, or read otherwise, is a finding of a rule (rules.def).  Nothing of a checkpoint is trusted.  Tensors
 * stream through memory in pieces, so that a checkpoint of any size takes the memory of its headers. */
#ifndef CALM_CHECK_CHECK_H
#define CALM_CHECK_CHECK_H

#include <stdint.h>

#include "ptq/base/context.h"

/* The engines of ptq/plan/engines.h. */
typedef enum calm_check_engine {
    CALM_CHECK_ANY,
    CALM_CHECK_VLLM,
    CALM_CHECK_SGLANG,
    CALM_CHECK_TRANSFORMERS,
    CALM_CHECK_LLAMACPP,
    CALM_CHECK_MLX
} calm_check_engine;

/* Their names in that order, as the values of an option. */
#define CALM_CHECK_ENGINE_NAMES "any|vllm|sglang|transformers|llamacpp|mlx"

/* "vllm": the name in calm_engine_find.  Static. */
const char *calm_check_engine_name(calm_check_engine engine);

typedef enum calm_severity { CALM_SEVERITY_NOTE, CALM_SEVERITY_WARNING, CALM_SEVERITY_ERROR } calm_severity;

/* "error" */
const char *calm_severity_name(calm_severity severity);

typedef struct calm_check_rule {
    const char *id; /* "CT002"                                                       */
    calm_severity severity;
    bool asked;       /* said only when the check is for one of `engines`              */
    unsigned engines; /* bit 1 << calm_check_engine for each whose behaviour it predicts */
    const char *title, *behaviour, *remedy;
} calm_check_rule;

/* All rules in the order of rules.def; *n their number. */
const calm_check_rule *calm_check_rules(size_t *n);

/* "vllm, sglang" of a rule's engines into `text`; "all" for every one. */
const char *calm_check_engines(unsigned engines, char text[64]);

typedef struct calm_finding {
    const calm_check_rule *rule;
    const char *where; /* module, tensor, file or key; never NULL */
    const char *what;  /* what was found, and what is expected    */
} calm_finding;

typedef struct calm_check_report {
    const char *format;     /* "compressed-tensors", "gguf", ...; NULL: not known, or none */
    calm_finding *findings; /* [n] in the order of checking: files, model, configuration, modules, values */
    size_t n;
    size_t n_severity[3]; /* how many of each calm_severity */
    size_t n_tensors, n_linears, n_quantized;
    uint64_t bytes; /* of all tensors                 */
} calm_check_report;

/* Check a directory (one without safetensors: its model.gguf) or a .gguf file for `engine`; the report is in ctx->out.
 * CALM_ENOTFOUND: no such path, or neither config.json nor tensors in it; CALM_EIO, CALM_ENOMEM.  Whatever is wrong
 * with what is there is a finding and no failure. */
calm_status calm_check(calm_ctx *ctx, const char *path, calm_check_engine engine, calm_check_report *out);

#endif
