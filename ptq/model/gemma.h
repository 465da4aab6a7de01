/* Code that the Gemma families share. */
#pragma once

#include "ptq/model/arch.h"

/* Norms before and after each sublayer. */
#define CALM_GEMMA_NAMES CALM_USUAL_MODULES, CALM_GEMMA_NORMS
#define CALM_GEMMA_NORMS                                                                                     \
    .norm = {[CALM_SUBLAYER_ATTENTION] = {[CALM_NORM_IN] = "input_layernorm",                                \
                                          [CALM_NORM_OUT] = "post_attention_layernorm"},                     \
             [CALM_SUBLAYER_MLP] = {[CALM_NORM_IN] = "pre_feedforward_layernorm",                            \
                                    [CALM_NORM_OUT] = "post_feedforward_layernorm"}}

/* Inputs of blocks of Gemma 3n and 4 (tail.h). */
#define CALM_GEMMA_INPUTS                                                                                    \
    .gate = "per_layer_input_gate", .projection = "per_layer_projection",                                    \
    .norm = "post_per_layer_input_norm", .table = "embed_tokens_per_layer",                                  \
    .context = "per_layer_model_projection", .context_norm = "per_layer_projection_norm"

/* Embedding scale sqrt(D), attention scale query_pre_attn_scalar^-1/2 (256 when absent), biases, and both soft caps:
 * the given ones when their keys are absent, none when they are null. */
calm_status calm_gemma_read(calm_ctx *ctx, const char *path, const calm_json *root, double attention_cap,
                            double logit_cap, calm_config *config);

/* Where Gemma 3n and 4 have their sizes. */
extern const calm_size_keys calm_gemma_sizes;

/* A soft cap: the key absent is `usual`, null is none (0). */
calm_status calm_gemma_read_cap(calm_ctx *ctx, const char *path, const calm_json *root, const char *key, double usual,
                                float *out);

/* The last "num_kv_shared_layers" blocks (`usual` when absent) read the keys and values of the last block of their
 * type before them, which are carried with the hidden rows (batch.h).  After the windows are read.  CALM_EFORMAT:
 * there is no such block. */
calm_status calm_gemma_read_sharing(calm_ctx *ctx, const char *path, const calm_json *root, int64_t usual,
                                    calm_config *config);

/* Width of per-layer inputs (0: none) and rows of their table, `usual_rows` when that key is absent. */
calm_status calm_gemma_read_inputs(calm_ctx *ctx, const char *path, const calm_json *root, int64_t usual_rows,
                                   calm_config *config);

/* sqrt(D). */
float calm_gemma_embedding_scale(const calm_config *config);

/* Gemma 3, with its head and without. */
#define CALM_GEMMA3_KEYS                                                                                     \
    "attention_bias hidden_activation query_pre_attn_scalar final_logit_softcapping "                        \
    "sliding_window sliding_window_pattern layer_types"
#define CALM_GEMMA3_DEFAULTS                                                                                 \
    .default_tied = true, .default_kv_heads = 4, .default_head_dim = 256, .default_positions = 131072,       \
    .default_rope_theta = 1000000.0, .local_theta_key = "rope_local_base_freq", .default_local_theta = 10000.0
calm_status calm_gemma3_read(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config);
