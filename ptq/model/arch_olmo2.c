/* OLMo 2: norms after each sublayer only, RMSNorm over the whole projection of q and k.
 *
 *   x += post_attention_layernorm(attn(x));  x += post_feedforward_layernorm(mlp(x))
 *
 * Reference: arXiv 2501.00656; transformers' modeling_olmo2.py. */
#include "ptq/model/qwen.h"

static const calm_names names = {
    .blocks = "layers",
    .embed = "embed_tokens",
    .final_norm = "norm",
    .head = "lm_head",
    .role = {[CALM_ROLE_Q] = "self_attn.q_proj", [CALM_ROLE_K] = "self_attn.k_proj", [CALM_ROLE_V] = "self_attn.v_proj",
             [CALM_ROLE_O] = "self_attn.o_proj", [CALM_ROLE_GATE] = "mlp.gate_proj", [CALM_ROLE_UP] = "mlp.up_proj",
             [CALM_ROLE_DOWN] = "mlp.down_proj"},
    .norm = {[CALM_SUBLAYER_ATTENTION] = {[CALM_NORM_OUT] = "post_attention_layernorm"},
             [CALM_SUBLAYER_MLP] = {[CALM_NORM_OUT] = "post_feedforward_layernorm"}},
    .q_norm = "self_attn.q_norm",
    .k_norm = "self_attn.k_norm",
};

const calm_arch calm_arch_olmo2 = {
    .name = "olmo2",
    .classes = "Olmo2ForCausalLM",
    .model_types = "olmo2",
    .prefixes = "model.|",
    .names = &names,
    .qk_norm = CALM_QK_NORM_WHOLE,
    .default_rope_theta = 10000.0,
    .default_eps = 1e-5,
    .keys = "attention_bias",
    .read_config = calm_qwen_biases,
};
