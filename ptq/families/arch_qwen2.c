/* Qwen2 and Qwen2.5: Llama's block with biases on q, k and v; the last blocks may slide.
 *
 * Reference: arXiv 2407.10671; transformers' modeling_qwen2.py. */
#include "ptq/families/qwen.h"

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    /* No setting: the class always has biases of q, k and v, and never one of o. */
    config->bias[CALM_ROLE_Q] = config->bias[CALM_ROLE_K] = config->bias[CALM_ROLE_V] = true;
    return calm_qwen_windows(ctx, path, root, calm_qwen_slides, config);
}

const calm_arch calm_arch_qwen2 = {
    .name = "qwen2",
    .classes = "Qwen2ForCausalLM",
    .stem = "Qwen2|Qwen2VLText|Qwen2_5_VLText",
    .model_types = "qwen2|qwen2_vl_text|qwen2_5_vl_text",
    .names = &calm_names_llama,
    .default_kv_heads = 32,
    .default_positions = 32768,
    .mrope = true,
    .default_rope_theta = 10000.0,
    .keys = "use_sliding_window sliding_window layer_types",
    .read_config = read_config,
};
