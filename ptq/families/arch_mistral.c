/* Mistral: Llama's block; every block slides over "sliding_window" keys unless that is null (4096 when absent).
 *
 * Reference: arXiv 2310.06825; transformers' modeling_mistral.py. */
#include "ptq/arch/arch.h"

static calm_status read_windows(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    /* The first Mistral has a window, later ones have null. */
    return calm_config_windows(ctx, path, root, 4096, calm_slides_always, 0, config);
}

const calm_arch calm_arch_mistral = {
    .name = "mistral",
    .classes = "MistralForCausalLM",
    .stem = "Mistral",
    .names = &calm_names_llama,
    .default_kv_heads = 8,
    .default_positions = 131072,
    .default_rope_theta = 10000.0,
    .keys = "sliding_window layer_types",
    .read_config = read_windows,
};
