/* What the Gemma families have in common. */
#ifndef CALM_MODEL_GEMMA_H
#define CALM_MODEL_GEMMA_H

#include "ptq/model/arch.h"

/* Norms before and after each sublayer. */
#define CALM_GEMMA_NAMES                                                                                     \
    CALM_USUAL_MODULES,                                                                                      \
    .norm = {[CALM_SUBLAYER_ATTENTION] = {[CALM_NORM_IN] = "input_layernorm",                                \
                                          [CALM_NORM_OUT] = "post_attention_layernorm"},                     \
             [CALM_SUBLAYER_MLP] = {[CALM_NORM_IN] = "pre_feedforward_layernorm",                            \
                                    [CALM_NORM_OUT] = "post_feedforward_layernorm"}}

/* Embedding scale sqrt(D), attention scale query_pre_attn_scalar^-1/2 (256 when absent), biases, and both soft caps:
 * the given ones when their keys are absent, none when they are null. */
calm_status calm_gemma_read(calm_ctx *ctx, const char *path, const calm_json *root, double attention_cap,
                            double logit_cap, calm_config *config);

#endif
