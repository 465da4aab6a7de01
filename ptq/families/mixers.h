/* Readers of config.json for families whose blocks have different mixers. */
#pragma once

#include "ptq/arch/arch.h"
#include "ptq/arch/kind.h"

/* Reads the keys that Qwen3-Next and Qwen3.5 share: blocks of gated delta nets, attention with an output gate. */
#define CALM_DELTA_KEYS                                                                                                \
    "layer_types full_attention_interval linear_conv_kernel_dim linear_key_head_dim linear_value_head_dim "            \
    "linear_num_key_heads linear_num_value_heads attention_bias"
calm_status calm_config_delta(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config);

/* Reads the keys that both LFM2 families share: blocks of short convolutions, two names of the tied head, silu.
 * Without "layer_types" the list `attention` has the numbers of the other blocks; without it too no block is a
 * convolution.  `attention` NULL: "layer_types" must be present. */
#define CALM_CONV_KEYS "layer_types conv_L_cache conv_bias tie_embedding norm_eps"
calm_status calm_config_conv(calm_ctx *ctx, const char *path, const calm_json *root, const char *attention,
                             calm_config *config);

/* A family's keys for Mamba-2, and the values of absent ones. */
typedef struct calm_mamba_keys {
    const char *heads, *head_dim, *groups, *state, *taps, *conv_bias, *bias;
    const char *expand;        /* the heads together have this times (2) the hidden size; NULL: any width */
    const char *least_step;    /* least time step (0.001); NULL: "time_step_limit" has their range */
    const char *activation;    /* function after the convolution (silu); NULL: the model's */
    int64_t usual_head_dim, usual_groups, usual_state;
} calm_mamba_keys;

/* Reads the sizes and settings of Mamba-2.  CALM_EFORMAT: they do not fit each other. */
calm_status calm_config_mamba_sizes(calm_ctx *ctx, const char *path, const calm_json *root,
                                    const calm_mamba_keys *keys, calm_config *config);

/* Makes Mamba-2 the mixer of the blocks that "layer_types" calls "linear_attention" or, in older files, "mamba"; of all
 * blocks where the list is absent. */
calm_status calm_config_mamba(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config);

/* Reads Nemotron-H's blocks, each of one sublayer: "layers_block_type" lists "linear_attention", "full_attention",
 * "mlp" and "moe", or "hybrid_override_pattern" has their letters M * - E.  Fills moe.sparse and, where a block is a
 * mixture, the other members of config->moe. */
#define CALM_SINGLE_LIST "layers_block_type"
#define CALM_SINGLE_WORD "hybrid_override_pattern"
calm_status calm_config_single(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config);

/* Members of a calm_arch with such blocks. */
#define CALM_SINGLE_BLOCKS .varies = true, .block_list = CALM_SINGLE_LIST, .block_word = CALM_SINGLE_WORD

/* Modules of Mamba-2 with the prefix `m` ("mamba."), for the initialisers of roles and of plain tensors. */
#define CALM_MAMBA_ROLES(m) [CALM_ROLE_MAMBA_IN] = m "in_proj", [CALM_ROLE_MAMBA_OUT] = m "out_proj"
#define CALM_MAMBA_PLAINS(m)                                                                                           \
    [CALM_PLAIN_MAMBA_CONV] = m "conv1d.weight", [CALM_PLAIN_MAMBA_CONV_BIAS] = m "conv1d.bias",                       \
    [CALM_PLAIN_MAMBA_A_LOG] = m "A_log", [CALM_PLAIN_MAMBA_DT] = m "dt_bias", [CALM_PLAIN_MAMBA_SKIP] = m "D",        \
    [CALM_PLAIN_MAMBA_NORM] = m "norm"

/* The modules of both LFM2, for the initialiser of a calm_names. */
#define CALM_LFM2_MODULES                                                                                              \
    .blocks = "layers", .embed = "embed_tokens", .final_norm = "embedding_norm", .head = "lm_head",                    \
    .parent = "conv", .engine_parent = "short_conv",                                                                   \
    .role = {[CALM_ROLE_Q] = "self_attn.q_proj", [CALM_ROLE_K] = "self_attn.k_proj",                                   \
             [CALM_ROLE_V] = "self_attn.v_proj", [CALM_ROLE_O] = "self_attn.out_proj",                                 \
             [CALM_ROLE_CONV_IN] = "conv.in_proj", [CALM_ROLE_CONV_OUT] = "conv.out_proj",                             \
             [CALM_ROLE_GATE] = "feed_forward.w1", [CALM_ROLE_UP] = "feed_forward.w3",                                 \
             [CALM_ROLE_DOWN] = "feed_forward.w2"},                                                                    \
    CALM_NORMS(IN, "operator_norm", "ffn_norm"),                                                     \
    .plain = {[CALM_PLAIN_Q_NORM] = "self_attn.q_layernorm", [CALM_PLAIN_K_NORM] = "self_attn.k_layernorm",            \
              [CALM_PLAIN_CONV] = "conv.conv.weight", [CALM_PLAIN_CONV_BIAS] = "conv.conv.bias"}

/* Defaults that both share. */
#define CALM_LFM2_DEFAULTS                                                                                             \
    .qk_norm = CALM_QK_NORM_HEAD, .default_tied = true, .default_kv_heads = 8, .default_positions = 128000,            \
    .default_rope_theta = 1000000.0, .eps_key = "norm_eps", .default_eps = 1e-5
