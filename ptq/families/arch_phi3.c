/* Phi-3, Phi-3.5 and Phi-4-mini: Llama's block with q, k, v in one matrix and gate, up in another, a partial rotary
 * embedding, longrope.
 *
 * Reference: arXiv 2404.14219; transformers' modeling_phi3.py. */
#include "ptq/arch/arch.h"

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    /* When absent there is no window; Mistral's code assumes 4096. */
    return calm_config_windows(ctx, path, root, 0, calm_slides_always, 0, config);
}

static const calm_names names = {
    CALM_USUAL_ENDS,
    .role = {[CALM_ROLE_FUSED_QKV] = "self_attn.qkv_proj", [CALM_ROLE_O] = "self_attn.o_proj",
             [CALM_ROLE_FUSED_GATE_UP] = "mlp.gate_up_proj", [CALM_ROLE_DOWN] = "mlp.down_proj"},
    CALM_PRE_NORMS,
};

const calm_arch calm_arch_phi3 = {
    .name = "phi3",
    .classes = "Phi3ForCausalLM",
    .stem = "Phi3",
    .names = &names,
    .default_positions = 4096,
    .default_rope_theta = 10000.0,
    .phi_rope = true,
    .default_eps = 1e-5,
    .keys = "sliding_window layer_types",
    .read_config = read_config,
};
