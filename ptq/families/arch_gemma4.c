/* Gemma 4 (text): Gemma 3's blocks and windows with plain RMSNorms.  Heads of full blocks are wider (global_head_dim),
 * and their rotary embedding rotates a part of the pairs; scores are not scaled; values are normalised, and in full
 * blocks of some models computed from the keys' linear (attention_k_eq_v).  The last num_kv_shared_layers blocks read
 * the keys and values of the last block of their type before them.  Each block ends with a per-layer input and a factor
 * (tail.h).  With enable_moe_block experts run next to the MLP, and their sum and the MLP's output each have a norm.
 *
 * Reference: transformers' modeling_gemma4.py. */
#include "ptq/families/gemma.h"

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    static const calm_moe_keys keys = {"num_experts", "top_k_experts", "moe_intermediate_size", true};
    CALM_TRY(calm_gemma_check_causal(ctx, path, root));
    CALM_TRY(calm_gemma_read_varied(ctx, path, root, 0, config));
    CALM_TRY(calm_config_windows(ctx, path, root, 512, calm_slides_between, 6, config));
    calm_config_full_last(ctx, path, config);    /* as transformers and vLLM do */
    CALM_TRY(calm_config_block_heads(ctx, path, root, 512, config));
    CALM_TRY(calm_config_block_ropes(ctx, path, root, 0.25, config));
    /* The class has no row for an id beyond its table, unlike Gemma 3n. */
    CALM_TRY(calm_gemma_read_inputs(ctx, path, root, (int64_t)config->vocab, config->vocab, config));
    CALM_TRY(calm_config_shared_keys(ctx, path, root, 0, config));
    return calm_config_experts_beside(ctx, path, root, "enable_moe_block", &keys, config);
}

/* Names of the tail of a block (tail.h). */
static const calm_tail_names tail = {.scale = "layer_scalar", CALM_GEMMA_INPUTS};

static const calm_names names = {
    CALM_GEMMA_NAMES,
    .plain = {[CALM_PLAIN_Q_NORM] = "self_attn.q_norm", [CALM_PLAIN_K_NORM] = "self_attn.k_norm",
              [CALM_PLAIN_ROUTER_SCALE] = "router.scale",
              [CALM_PLAIN_EXPERT_SCALE] = "router.per_expert_scale",
              [CALM_PLAIN_EXPERTS_NORM] = "pre_feedforward_layernorm_2",
              [CALM_PLAIN_EXPERTS_OUT_NORM] = "post_feedforward_layernorm_2",
              [CALM_PLAIN_SHARED_OUT_NORM] = "post_feedforward_layernorm_1"},
    .tail = &tail,
    .moe = {.router = "router.proj", .experts = "experts", .shared = "mlp", .fused_gate_up = "experts.gate_up_proj",
            .fused_down = "experts.down_proj"},
};

const calm_arch calm_arch_gemma4 = {
    CALM_GEMMA_VARIED,
    .name = "gemma4",
    .classes = "Gemma4ForCausalLM",
    .stem = "Gemma4Text",
    .model_types = "gemma4_text",
    .names = &names,
    .default_kv_heads = 4,
    .default_positions = 131072,
    .proportional_rope = true,
    .keys = "attention_bias final_logit_softcapping sliding_window layer_types per_layer_config global_head_dim "
            "num_global_key_value_heads attention_k_eq_v num_kv_shared_layers use_double_wide_mlp "
            "hidden_size_per_layer_input vocab_size_per_layer_input use_bidirectional_attention enable_moe_block "
            "num_experts top_k_experts moe_intermediate_size",
    .read_config = read_config,
};
