/* Code that the families around BERT share. */
#pragma once

#include "ptq/arch/arch.h"

/* Names of the blocks of BERT and RoBERTa. */
#define CALM_BERT_MODULES                                                                                    \
    .blocks = "encoder.layer", .embed = "embeddings.word_embeddings",                                        \
    .role = {[CALM_ROLE_Q] = "attention.self.query", [CALM_ROLE_K] = "attention.self.key",                   \
             [CALM_ROLE_V] = "attention.self.value", [CALM_ROLE_O] = "attention.output.dense",               \
             [CALM_ROLE_UP] = "intermediate.dense", [CALM_ROLE_DOWN] = "output.dense"},                      \
    .parent = "attention.self", .engine_parent = "attention.output",                                         \
    CALM_NORMS(RESIDUAL, "attention.output.LayerNorm", "output.LayerNorm")

/* Embeddings of BERT, with a table of positions and one of types. */
#define CALM_BERT_EMBEDDINGS                                                                                 \
    .positions = "embeddings.position_embeddings", .types = "embeddings.token_type_embeddings",              \
    .norm = "embeddings.LayerNorm"

/* Names of the head for masked tokens of BERT, with the word `norm` of its norm. */
#define CALM_BERT_HEAD(norm)                                                                                 \
    .transform = "cls.predictions.transform.dense", .transform_norm = "cls.predictions.transform." norm,     \
    .bias = "cls.predictions.decoder.bias|cls.predictions.bias"

/* Names of the head for masked tokens in RoBERTa and its descendants. */
#define CALM_ROBERTA_HEAD                                                                                    \
    .transform = "lm_head.dense", .transform_norm = "lm_head.layer_norm",                                    \
    .bias = "lm_head.decoder.bias|lm_head.bias"

/* Members of a calm_arch: an encoder with LayerNorm whose head for masked tokens is the embedding. */
#define CALM_BERT_ENCODER .norm = CALM_NORM_LAYER, .encoder = true, .both_ways = true, .default_tied = true

/* The same with a table of 512 positions. */
#define CALM_BERT_DEFAULTS                                                                                   \
    CALM_BERT_ENCODER, .default_activation = "gelu", .default_positions = 512, .default_eps = 1e-12

/* Members that RoBERTa and XLM-RoBERTa share. */
#define CALM_ROBERTA_ARCH                                                                                    \
    CALM_BERT_DEFAULTS, .prefixes = "roberta.|", .names = &calm_names_roberta, .ends = &calm_ends_roberta,   \
    .keys = CALM_BERT_KEYS, .fixed = CALM_BERT_FIXED, .read_config = calm_roberta_read

/* Keys that read_config of BERT and of RoBERTa read.  Relative positions would add terms to the scores, which attention
 * here does not compute. */
#define CALM_BERT_KEYS "type_vocab_size is_decoder"
#define CALM_BERT_FIXED "position_embedding_type=absolute"

/* vLLM's names of the linears of GTE and Nomic's BERT. */
extern const calm_names calm_names_rotary_bert;

/* The modules of RoBERTa and XLM-RoBERTa, and their common reader of config.json. */
extern const calm_names calm_names_roberta;
extern const calm_ends calm_ends_roberta;
calm_status calm_roberta_read(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config);

/* Fills n_types from "type_vocab_size", `fallback` when absent, at least `least`. */
calm_status calm_bert_types(calm_ctx *ctx, const char *path, const calm_json *root, int64_t fallback, int64_t least,
                               calm_config *config);

/* Makes attention causal where "is_decoder" is set. */
calm_status calm_bert_order(calm_ctx *ctx, const char *path, const calm_json *root, calm_config *config);

/* Makes positions begin after row `padding`, that of padding tokens.  CALM_EFORMAT: the table has no row after it. */
calm_status calm_bert_padding(calm_ctx *ctx, const char *path, int64_t padding, calm_config *config);

/* Gives all linears of all blocks a bias. */
void calm_bert_biases(calm_config *config);
