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

/* Published files have block_ff_dim, which transformers prefers to intermediate_size. */
static const calm_size_keys sizes = {"hidden_size", "intermediate_size", "num_hidden_layers",
                                     "num_attention_heads", "max_position_embeddings", NULL, NULL, "block_ff_dim"};

static const calm_names names = {CALM_LFM2_MODULES};

const calm_arch calm_arch_lfm2 = {
    .name = "lfm2",
    .classes = "Lfm2ForCausalLM",
    .stem = "Lfm2",
    CALM_LFM2_DEFAULTS,
    .sizes = &sizes,
    .names = &names,
    .keys = CALM_CONV_KEYS " full_attn_idxs block_auto_adjust_ff_dim block_ffn_dim_multiplier block_multiple_of",
    .read_config = read_config,
};
