/* adapter_config.json: the settings of a LoRA adapter, parsed and checked. */
#pragma once

#include "ptq/base/option.h"
#include "ptq/io/json.h"

typedef struct calm_adapter_config {
    const char *path;
    calm_json *json;
    int64_t rank;      /* r                                                */
    double alpha;      /* lora_alpha                                       */
    bool rank_root;    /* the scale is alpha / sqrt(r) instead of alpha / r */
} calm_adapter_config;

/* Reads it from folder `dir`; strings are in ctx->out.  Close it also after a failure.  CALM_ENOTFOUND, CALM_EFORMAT.
 * CALM_EUNSUPPORTED: a kind of adapter, or a setting, that is not plain LoRA, by its name. */
calm_status calm_adapter_config_read(calm_ctx *ctx, const char *dir, const calm_words *accepted,
                                     calm_adapter_config *out);
void calm_adapter_config_close(calm_adapter_config *config);

/* Gives the rank and scale of a module, by its name in the base, from rank_pattern and alpha_pattern or the defaults.
 * CALM_EFORMAT: an invalid pattern. */
calm_status calm_adapter_config_module(calm_ctx *ctx, const calm_adapter_config *config, const char *module,
                                       size_t *rank, float *scale);
