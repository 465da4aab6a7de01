/* calm check: finds what engines would refuse or misread in a quantized checkpoint.
 *
 * calm reads a directory (compressed-tensors, GPTQ, AWQ, MLX; written by calm or not) or a GGUF file as engines do, and
 * reports what engines would refuse or read with other values as findings of rules (rules.def).  The checkpoint is
 * untrusted.  Tensors are read in pieces, so that memory holds only the headers of a checkpoint. */
#pragma once

#include <stdint.h>

#include "ptq/base/context.h"
#include "ptq/base/option.h"
#include "ptq/check/check_rules.h"

typedef struct calm_finding {
    const calm_check_rule_info *rule;
    const char *where; /* module, tensor, file or key; never NULL */
    const char *what;  /* what was found and what is expected */
} calm_finding;

typedef struct calm_check_report {
    const char *format;     /* "compressed-tensors", "gguf", ...; NULL: unknown or not quantized */
    calm_finding *findings; /* [n] in the order of checking: files, model, configuration, modules, values */
    size_t n;
    size_t n_severity[3];   /* number of findings of each calm_severity */
    size_t n_tensors, n_linears, n_quantized;
    uint64_t bytes;         /* of all tensors */
} calm_check_report;

/* Checks a directory (its model.gguf if there is no safetensors file) or a .gguf file for `engine`; the report is in
 * ctx->out.  CALM_ENOTFOUND: there is no such path, or it has neither config.json nor tensors; CALM_EIO, CALM_ENOMEM.
 * Faults of the checkpoint are findings, not failures. */
calm_status calm_check(calm_ctx *ctx, const char *path, calm_check_engine engine, calm_check_report *out);

/* Does the same, and ignores unknown keys of config.json with these names (ptq/arch/config.h). */
calm_status calm_check_accepting(calm_ctx *ctx, const char *path, calm_check_engine engine,
                                 const calm_words *accept_keys, calm_check_report *out);
