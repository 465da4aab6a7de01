/* calm verify --signature: compares a model folder with its signature. */
#pragma once

#include "ptq/base/context.h"

typedef struct calm_signature_options {
    const char *signature, *key, *certificates;    /* files, as typed; NULL: not given */
    bool json, quiet;
} calm_signature_options;

/* Compares `dir` with its signature and prints the result.  CALM_EMISMATCH: the signature is invalid, or a file is not
 * as signed.  CALM_EARG: not exactly one of key and certificates. */
calm_status calm_verify_signature(calm_ctx *ctx, const char *dir, const calm_signature_options *options);
