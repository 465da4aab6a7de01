/* calm verify --signature: compares a model folder with its signature. */
#pragma once

#include "ptq/base/context.h"

typedef struct calm_signature_options {
    const char *signature, *key, *certificates;    /* of the command line; NULL: not given */
    bool json, quiet;
} calm_signature_options;

/* Check and print.  CALM_EMISMATCH: the signature or a file is not as signed.  CALM_EARG: not exactly one of key and
 * certificates. */
calm_status calm_verify_signature(calm_ctx *ctx, const char *dir, const calm_signature_options *options);
