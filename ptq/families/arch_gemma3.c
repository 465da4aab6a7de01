/* Gemma 3 (text): Gemma 2 without soft caps, with RMSNorm over heads of q and k, a full block after every five sliding
 * ones, and a separate rotary embedding for sliding blocks.
 *
 * Reference: arXiv 2503.19786; transformers' modeling_gemma3.py. */
#include "ptq/families/gemma.h"

static const calm_names names = {CALM_GEMMA_NAMES, CALM_QK_NORMS("self_attn.q_norm", "self_attn.k_norm")};

const calm_arch calm_arch_gemma3 = {
    .name = "gemma3",
    .classes = "Gemma3ForCausalLM",
    .model_types = "gemma3_text",
    .names = &names,
    .norm = CALM_NORM_RMS_PLUS_ONE,
    .qk_norm = CALM_QK_NORM_HEAD,
    CALM_GEMMA3_DEFAULTS,
    .keys = CALM_GEMMA3_KEYS,
    .read_config = calm_gemma3_read,
};
