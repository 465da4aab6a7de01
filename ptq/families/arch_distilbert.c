/* DistilBERT: BERT without token types, with other names.
 *
 * Reference: arXiv 1910.01108; transformers' modeling_distilbert.py. */
#include "ptq/families/bert.h"

static calm_status read_config(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config)
{
    (void)ctx;
    (void)path;
    (void)root;
    calm_bert_biases(config);
    return CALM_OK;
}

/* Names in checkpoints, after the prefix. */
static const calm_names names = {
    .blocks = "transformer.layer",
    .embed = "embeddings.word_embeddings",
    .head = "vocab_projector",
    .role = {[CALM_ROLE_Q] = "attention.q_lin", [CALM_ROLE_K] = "attention.k_lin", [CALM_ROLE_V] = "attention.v_lin",
             [CALM_ROLE_O] = "attention.out_lin", [CALM_ROLE_UP] = "ffn.lin1", [CALM_ROLE_DOWN] = "ffn.lin2"},
    CALM_NORMS(RESIDUAL, "sa_layer_norm", "output_layer_norm"),
};

/* Modules before and after the blocks. */
static const calm_ends ends = {
    .positions = "embeddings.position_embeddings",
    .norm = "embeddings.LayerNorm",
    .transform = "vocab_transform",
    .transform_norm = "vocab_layer_norm",
    .bias = "vocab_projector.bias",
};

static const calm_size_keys sizes = {"dim", "hidden_dim", "n_layers", "n_heads", "max_position_embeddings", NULL,
                                     "activation", NULL};

/* config.json has no key for the norms' eps. */
const calm_arch calm_arch_distilbert = {
    .name = "distilbert",
    .classes = "DistilBertForMaskedLM",
    .stem = "DistilBert",
    .prefixes = "distilbert.|",
    .names = &names,
    CALM_BERT_DEFAULTS,
    .ends = &ends,
    .sizes = &sizes,
    .eps_key = "",
    .aliases = "hidden_size=dim num_attention_heads=n_heads num_hidden_layers=n_layers",
    .read_config = read_config,
};
