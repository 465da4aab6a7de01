/* Command R7B, Command A: attention and MLP read the output of one LayerNorm, and both are added to x; sliding blocks
 * have a rotary embedding of neighbouring channels, full blocks none; logits are scaled.
 *
 *   h = input_layernorm(x);  x += attn(h) + mlp(h)
 *
 * Reference: arXiv 2504.00698; transformers' modeling_cohere2.py. */
#include "ptq/arch/arch.h"

/* Windows follow the pattern; blocks without a window have no rotary embedding. */
static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    double scale;
    CALM_TRY(calm_config_attention_biases(ctx, path, root, config));
    CALM_TRY(calm_json_need_number(ctx, path, root, "logit_scale", &(double){0.0625}, 1e-6, 1e6, &scale));
    config->logit_scale = (float)scale;
    CALM_TRY(calm_config_windows_by(ctx, path, root, 4096, "sliding_window_pattern", 4, calm_slides_between, config));
    CALM_TRY(calm_config_new_no_rope(ctx, config));
    for (size_t i = 0; i < config->n_blocks; i++)
        config->no_rope[i] = !calm_config_slides(config, i);
    return CALM_OK;
}

static const calm_names names = {
    CALM_USUAL_MODULES, .norm = {[CALM_SUBLAYER_ATTENTION] = {[CALM_NORM_IN] = "input_layernorm"}}};

const calm_arch calm_arch_cohere2 = {
    .name = "cohere2",
    .classes = "Cohere2ForCausalLM",
    .stem = "Cohere2",
    .names = &names,
    .norm = CALM_NORM_LAYER,
    .no_norm_bias = true,
    .parallel = true,
    .default_tied = true,
    .default_positions = 8192,
    .default_rope_theta = 10000.0,
    .neighbours = true,
    .default_eps = 1e-5,
    .keys = "attention_bias logit_scale sliding_window sliding_window_pattern layer_types use_embedding_sharing "
            "layer_switch",
    .fixed = "position_embedding_type=rope_gptj rotary_pct=1 use_qk_norm=false use_parallel_block=true "
             "use_gated_activation=true use_parallel_embedding=false order_of_interleaved_layers=local_attn_first",
    .read_config = read_config,
};
