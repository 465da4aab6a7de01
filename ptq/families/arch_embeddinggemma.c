/* Gemma 3 without a head for the next token: EmbeddingGemma, whose attention is bidirectional ("full") or sees half a
 * window on either side ("sliding"), and text encoders that stay causal.
 *
 * Reference: arXiv 2509.20354; transformers' modeling_gemma3.py. */
#include "ptq/families/gemma.h"

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    CALM_TRY(calm_gemma3_read(ctx, path, root, config));
    CALM_TRY(calm_json_need_bool(ctx, path, root, "use_bidirectional_attention", &(bool){false}, &config->both_ways));
    /* A causal model keeps its windows. */
    if (config->both_ways)
        calm_config_windows_both_ways(config);
    return CALM_OK;
}

/* The class has no head. */
static const calm_names names = {
    .blocks = "layers", .embed = "embed_tokens", .final_norm = "norm", CALM_USUAL_ROLES, CALM_GEMMA_NORMS,
    CALM_QK_NORMS("self_attn.q_norm", "self_attn.k_norm"),
};

const calm_arch calm_arch_embeddinggemma = {
    .name = "embeddinggemma",
    .classes = "Gemma3TextModel",
    .stem = "Gemma3Text",
    .model_types = "gemma3_text",
    .names = &names,
    .norm = CALM_NORM_RMS_PLUS_ONE,
    .qk_norm = CALM_QK_NORM_HEAD,
    .encoder = true,
    CALM_GEMMA3_DEFAULTS,
    .keys = CALM_GEMMA3_KEYS " use_bidirectional_attention",
    .read_config = read_config,
};
