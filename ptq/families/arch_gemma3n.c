/* Gemma 3n (text): windows and rotary embeddings of Gemma 3 with plain RMSNorms, unscaled scores, normalised values,
 * and shared keys and per-layer inputs like Gemma 4.  A block updates several residual streams, of which its sublayers
 * read one, with a low-rank branch next to attention (streams.h).  Widths of MLPs, and shares of zeros in gates
 * (gaussian_top_k.h), are lists over blocks.
 *
 * Reference: transformers' modeling_gemma3n.py. */
#include "ptq/families/gemma.h"

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    CALM_TRY(calm_gemma_read_varied(ctx, path, root, 30, config));
    CALM_TRY(calm_config_windows(ctx, path, root, 512, calm_slides_between, 5, config));
    /* Larger ids take the first row. */
    CALM_TRY(calm_gemma_read_inputs(ctx, path, root, 262144, 0, config));
    if (!config->per_layer)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"hidden_size_per_layer_input\": expected at least 1, found 0 or null",
                         path);
    CALM_TRY(calm_config_inner_list(ctx, path, root, "intermediate_size", config));
    CALM_TRY(calm_config_gate_sparsity(ctx, path, root, 10, 0.95F, config));
    CALM_TRY(calm_config_shared_keys(ctx, path, root, 15, config));
    return calm_config_streams(ctx, path, root, config);
}

/* Names of per-layer inputs (tail.h); there is no factor after them. */
static const calm_tail_names tail = {CALM_GEMMA_INPUTS};

static const calm_stream_names streams = {
    .router_norm = "altup.router_norm",
    .router = "altup.modality_router",
    .predict = "altup.prediction_coefs",
    .correct = "altup.correction_coefs",
    .scale = "altup.correct_output_scale",
    .left = "laurel.linear_left",
    .right = "laurel.linear_right",
    .laurel_norm = "laurel.post_laurel_norm",
    .split = "altup_projections",
    .merge = "altup_unembed_projections",
};

static const calm_names names = {CALM_GEMMA_NAMES, CALM_QK_NORMS("self_attn.q_norm", "self_attn.k_norm"),
                                 .tail = &tail, .streams = &streams};

const calm_arch calm_arch_gemma3n = {
    CALM_GEMMA_VARIED,
    .name = "gemma3n",
    .classes = "Gemma3nForCausalLM",
    .stem = "Gemma3nText",
    .model_types = "gemma3n_text",
    .names = &names,
    .inner_list = true,
    .default_kv_heads = 2,
    .default_positions = 32768,
    .local_theta_key = "rope_local_base_freq",
    /* Published files have query_pre_attn_scalar, which no code of the family reads: scores are not scaled. */
    .keys = "query_pre_attn_scalar attention_bias final_logit_softcapping sliding_window layer_types "
            "num_kv_shared_layers hidden_size_per_layer_input vocab_size_per_layer_input altup_num_inputs "
            "altup_active_idx altup_correct_scale laurel_rank activation_sparsity_pattern",
    .read_config = read_config,
};
