/* Qwen3.5 and Qwen3.6: blocks of gated delta nets (kind_delta.c); every fourth block has attention with an output gate,
 * with RMSNorm (1 + w) over each head of q and k before a partial rotary embedding.
 *
 * Reference: transformers' modeling_qwen3_5.py. */
#include "ptq/families/qwen.h"

const calm_names calm_names_qwen3_5 = {
    CALM_USUAL_ENDS, CALM_QWEN_MIXERS,
    .role = {CALM_QWEN_ROLES, [CALM_ROLE_DELTA_QKV] = "linear_attn.in_proj_qkv",
             [CALM_ROLE_DELTA_Z] = "linear_attn.in_proj_z", [CALM_ROLE_DELTA_B] = "linear_attn.in_proj_b",
             [CALM_ROLE_DELTA_A] = "linear_attn.in_proj_a"}};

const calm_arch calm_arch_qwen3_5 = {
    .name = "qwen3_5",
    .classes = "Qwen3_5ForCausalLM",
    .stem = "Qwen3_5|Qwen3_5Text",
    .model_types = "qwen3_5_text",
    CALM_QWEN_HYBRID,
    .default_kv_heads = 4,
    .names = &calm_names_qwen3_5,
    .keys = CALM_DELTA_KEYS,
    .read_config = calm_config_delta,
};
