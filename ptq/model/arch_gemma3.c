/* Gemma 3 (text): Gemma 2 without soft caps, with RMSNorm over heads of q and k, five sliding blocks to a full one, and
 * a separate rotary embedding for the sliding ones.
 *
 * Reference: arXiv 2503.19786; transformers' modeling_gemma3.py. */
#include "ptq/model/gemma.h"

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    int64_t pattern;
    /* Soft caps are off unless the config sets them. */
    CALM_TRY(calm_gemma_read(ctx, path, root, 0, 0, config));
    CALM_TRY(calm_json_need_int(ctx, path, root, "sliding_window_pattern", &(int64_t){6}, 1, 4096, &pattern));
    return calm_config_windows(ctx, path, root, 4096, calm_slides_between, pattern, config);
}

static const calm_names names = {CALM_GEMMA_NAMES, .q_norm = "self_attn.q_norm", .k_norm = "self_attn.k_norm"};

const calm_arch calm_arch_gemma3 = {
    .name = "gemma3",
    .classes = "Gemma3ForCausalLM",
    .model_types = "gemma3_text",
    .prefixes = CALM_DECODER_PREFIXES,
    .names = &names,
    .norm = CALM_NORM_RMS_PLUS_ONE,
    .qk_norm = CALM_QK_NORM_HEAD,
    .default_tied = true,
    .default_kv_heads = 4,
    .default_head_dim = 256,
    .default_positions = 131072,
    .default_rope_theta = 1000000.0,
    .keys = "attention_bias hidden_activation query_pre_attn_scalar final_logit_softcapping "
            "sliding_window sliding_window_pattern layer_types rope_local_base_freq",
    .read_config = read_config,
};
