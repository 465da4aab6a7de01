/* Readers of config.json that the Qwen families share.  With use_sliding_window, blocks from max_window_layers on have
 * sliding-window attention. */
#pragma once

#include "ptq/families/mixers.h"

/* Fills config->window; `slides` gets max_window_layers (28 when absent) as its pattern. */
calm_status calm_qwen_windows(calm_ctx *ctx, const char *path, const calm_json *root, calm_slides_fn *slides,
                              calm_config *config);

/* For `slides` of Qwen2 and Qwen3: is block >= max_window_layers? */
bool calm_qwen_slides(size_t block, int64_t max_window_layers);

/* Names of modules in families with gated delta nets: attention, MLP and mixture are Qwen3's; the families differ in
 * how q, k, v, z, b and a are stored in matrices. */
#define CALM_QWEN_ROLES                                                                                                \
    CALM_ATTENTION_ROLES("self_attn."), CALM_MLP_ROLES("mlp."), [CALM_ROLE_DELTA_OUT] = "linear_attn.out_proj"
#define CALM_QWEN_MIXERS                                                                                               \
    CALM_PRE_NORMS,                                                                                                    \
    .plain = {[CALM_PLAIN_Q_NORM] = "self_attn.q_norm", [CALM_PLAIN_K_NORM] = "self_attn.k_norm",                      \
              [CALM_PLAIN_DELTA_CONV] = "linear_attn.conv1d.weight", [CALM_PLAIN_DELTA_A_LOG] = "linear_attn.A_log",   \
              [CALM_PLAIN_DELTA_DT] = "linear_attn.dt_bias", [CALM_PLAIN_DELTA_NORM] = "linear_attn.norm"},            \
    .moe = {.router = "mlp.gate", .experts = "mlp.experts", .shared = "mlp.shared_expert",                             \
            .shared_gate = "mlp.shared_expert_gate", .fused_gate_up = "mlp.experts.gate_up_proj",                      \
            .fused_down = "mlp.experts.down_proj"}

extern const calm_names calm_names_qwen3_5;

/* Defaults that these families share. */
#define CALM_QWEN_HYBRID                                                                                               \
    .norm = CALM_NORM_RMS_PLUS_ONE, .default_activation = "silu", .qk_norm = CALM_QK_NORM_HEAD,                        \
    .default_head_dim = 256, .default_positions = 32768, .default_rope_theta = 10000.0, .partial_rope = 0.25,          \
    .mrope = true, .fixed = "attn_output_gate=true"
