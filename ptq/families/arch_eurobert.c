/* EuroBERT: Llama's block with bidirectional attention.
 *
 * Reference: arXiv 2503.05500; transformers' modeling_eurobert.py. */
#include "ptq/arch/arch.h"

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    /* Two switches, like Llama's. */
    bool mlp;
    CALM_TRY(calm_json_need_bool(ctx, path, root, "mlp_bias", &(bool){false}, &mlp));
    config->bias[CALM_ROLE_GATE] = config->bias[CALM_ROLE_UP] = config->bias[CALM_ROLE_DOWN] = mlp;
    /* "mlp_bias" also sets the head's bias. */
    config->head_bias = mlp && config->arch->names->head;
    return calm_config_attention_biases(ctx, path, root, config);
}

/* The class without a head is found by the stem. */
const calm_arch calm_arch_eurobert = {
    .name = "eurobert",
    .classes = "EuroBertForMaskedLM",
    .stem = "EuroBert",
    .prefixes = "model.|",
    .names = &calm_names_llama,
    .encoder = true,
    .both_ways = true,
    .default_positions = 8192,
    .default_rope_theta = 10000.0,
    .default_eps = 1e-5,
    .keys = "attention_bias mlp_bias",
    .read_config = read_config,
};
