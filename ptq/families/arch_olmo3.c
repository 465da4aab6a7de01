/* OLMo 3: OLMo 2's block; a full block after every three sliding ones; only full blocks have a scaled rotary embedding.
 *
 * Reference: OLMo 3 (Allen AI, 2025); transformers' modeling_olmo3.py. */
#include "ptq/arch/arch.h"

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    CALM_TRY(calm_config_attention_biases(ctx, path, root, config));
    return calm_config_windows(ctx, path, root, 4096, calm_slides_between, 4, config);
}

const calm_arch calm_arch_olmo3 = {
    .name = "olmo3",
    .classes = "Olmo3ForCausalLM",
    .stem = "Olmo3",
    .names = &calm_names_olmo,
    .qk_norm = CALM_QK_NORM_WHOLE,
    .default_rope_theta = 500000.0,
    .local_rope = true,
    .default_eps = 1e-5,
    .keys = "attention_bias sliding_window layer_types",
    .read_config = read_config,
};
