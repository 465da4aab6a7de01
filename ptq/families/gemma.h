/* Code that the Gemma families share. */
#pragma once

#include "ptq/arch/arch.h"

/* Norms before and after each sublayer. */
#define CALM_GEMMA_NAMES CALM_USUAL_MODULES, CALM_GEMMA_NORMS
#define CALM_GEMMA_NORMS                                                                                     \
    .norm = {[CALM_SUBLAYER_ATTENTION] = {[CALM_NORM_IN] = "input_layernorm",                                \
                                          [CALM_NORM_OUT] = "post_attention_layernorm"},                     \
             [CALM_SUBLAYER_MLP] = {[CALM_NORM_IN] = "pre_feedforward_layernorm",                            \
                                    [CALM_NORM_OUT] = "post_feedforward_layernorm"}}

/* Names of the per-layer inputs of Gemma 3n and 4 (tail.h). */
#define CALM_GEMMA_INPUTS                                                                                    \
    .gate = "per_layer_input_gate", .projection = "per_layer_projection",                                    \
    .norm = "post_per_layer_input_norm", .table = "embed_tokens_per_layer",                                  \
    .context = "per_layer_model_projection", .context_norm = "per_layer_projection_norm"

/* Sets the embedding scale sqrt(D), the attention scale query_pre_attn_scalar^-1/2 (256 when absent), biases, and both
 * soft caps: the given values when their keys are absent, no cap when they are null. */
calm_status calm_gemma_read(calm_ctx *ctx, const char *path, const calm_json *root, double attention_cap,
                            double logit_cap, calm_config *config);

/* Members of a calm_arch that Gemma 3n and 4 share. */
#define CALM_GEMMA_VARIED                                                                                    \
    .prefixes = CALM_DECODER_PREFIXES,                                                                       \
    .sizes = CALM_SIZES("intermediate_size", .activation = "hidden_activation"), .norm = CALM_NORM_RMS,      \
    .qk_norm = CALM_QK_NORM_HEAD, .varies = true, .default_tied = true, .default_head_dim = 256,             \
    .default_activation = "gelu_pytorch_tanh", .default_rope_theta = 1000000.0, .default_local_theta = 10000.0

/* Reads the keys that Gemma 3n and 4 share: biases of attention and the soft cap of logits (`logit_cap` when absent).
 * Scores are not scaled, and values are normalised. */
calm_status calm_gemma_read_varied(calm_ctx *ctx, const char *path, const calm_json *root, double logit_cap,
                                   calm_config *config);

/* Reads the width of per-layer inputs (0: none) and the rows of their table, `usual_rows` when that key is absent.
 * CALM_EUNSUPPORTED: fewer rows than `least`. */
calm_status calm_gemma_read_inputs(calm_ctx *ctx, const char *path, const calm_json *root, int64_t usual_rows,
                                   size_t least, calm_config *config);

/* Fails with CALM_EUNSUPPORTED unless "use_bidirectional_attention" leaves text causal: null, or "vision". */
calm_status calm_gemma_check_causal(calm_ctx *ctx, const char *path, const calm_json *root);

/* Settings of Gemma 3 with and without its head. */
#define CALM_GEMMA3_KEYS                                                                                     \
    "attention_bias hidden_activation query_pre_attn_scalar final_logit_softcapping "                        \
    "sliding_window sliding_window_pattern layer_types"
#define CALM_GEMMA3_DEFAULTS                                                                                 \
    .default_tied = true, .default_kv_heads = 4, .default_head_dim = 256, .default_positions = 131072,       \
    .default_rope_theta = 1000000.0, .local_theta_key = "rope_local_base_freq", .default_local_theta = 10000.0
calm_status calm_gemma3_read(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config);
