/* LFM2 (Liquid): blocks of short convolutions (kind_conv.c) and some of attention, whose q and k have an RMSNorm over
 * each head; an MLP w2(silu(w1(h)) * w3(h)); the norm before the head is called embedding_norm.
 *
 * Reference: transformers' modeling_lfm2.py. */
#include "ptq/families/mixers.h"

/* Older files list the blocks with attention. */
static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    CALM_TRY(calm_config_adjusted_inner(ctx, path, root, config));
    return calm_config_conv(ctx, path, root, "full_attn_idxs", config);
}

static const calm_names names = {CALM_LFM2_MODULES};

/* Published files have block_ff_dim, which transformers prefers to intermediate_size. */
const calm_arch calm_arch_lfm2 = {
    .name = "lfm2",
    .classes = "Lfm2ForCausalLM",
    .stem = "Lfm2",
    CALM_LFM2_DEFAULTS,
    .sizes = CALM_SIZES("intermediate_size", .inner_first = "block_ff_dim"),
    .names = &names,
    .keys = CALM_CONV_KEYS " full_attn_idxs block_auto_adjust_ff_dim block_ffn_dim_multiplier block_multiple_of",
    .read_config = read_config,
};
