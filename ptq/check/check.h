/* calm check: finds what engines would refuse or read with other values in a quantized checkpoint.
 *
 * A directory (compressed-tensors, GPTQ, AWQ, MLX; calm's or not) or a GGUF file is read as engines read it; what they
 * would fail on, or read otherwise, is a finding of a rule (rules.def).  Nothing of a checkpoint is trusted.  Tensors
 * stream through memory in pieces, so that a checkpoint of any size takes the memory of its headers. */
#pragma once

#include <stdint.h>

#include "ptq/base/context.h"
#include "ptq/base/option.h"
#include "ptq/check/check_rules.h"

typedef struct calm_finding {
    const calm_check_rule_info *rule;
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

/* The same; keys of config.json of these names are taken to change nothing (ptq/model/config.h). */
calm_status calm_check_accepting(calm_ctx *ctx, const char *path, calm_check_engine engine,
                                 const calm_words *accept_keys, calm_check_report *out);
