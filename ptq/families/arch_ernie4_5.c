/* ERNIE 4.5 (dense): Llama's block with a rotary embedding of neighbouring channels; biases everywhere or nowhere.
 *
 * Reference: ERNIE 4.5 technical report; transformers' modeling_ernie4_5.py. */
#include "ptq/arch/arch.h"

/* One key sets all biases. */
static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    return calm_config_use_bias(ctx, path, root, false, config);
}

const calm_arch calm_arch_ernie4_5 = {
    .name = "ernie4_5",
    .classes = "Ernie4_5ForCausalLM|Ernie4_5_ForCausalLM",
    .stem = "Ernie4_5",
    .names = &calm_names_llama,
    .default_tied = true,
    .default_kv_heads = 2,
    .default_head_dim = 128,
    .default_positions = 131072,
    .default_rope_theta = 500000.0,
    .neighbours = true,
    .default_eps = 1e-5,
    .keys = "use_bias",
    .read_config = read_config,
};
