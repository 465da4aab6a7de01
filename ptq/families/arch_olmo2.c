/* OLMo 2: norms only after each sublayer, RMSNorm over the whole projection of q and k.
 *
 *   x += post_attention_layernorm(attn(x));  x += post_feedforward_layernorm(mlp(x))
 *
 * Reference: arXiv 2501.00656; transformers' modeling_olmo2.py. */
#include "ptq/arch/arch.h"

const calm_names calm_names_olmo = {
    CALM_USUAL_MODULES,
    CALM_POST_NORMS,
    CALM_QK_NORMS("self_attn.q_norm", "self_attn.k_norm"),
};

const calm_arch calm_arch_olmo2 = {
    .name = "olmo2",
    .classes = "Olmo2ForCausalLM",
    .stem = "Olmo2",
    .names = &calm_names_olmo,
    .qk_norm = CALM_QK_NORM_WHOLE,
    .default_rope_theta = 10000.0,
    .default_eps = 1e-5,
    .keys = "attention_bias",
    .read_config = calm_config_attention_biases,
};
