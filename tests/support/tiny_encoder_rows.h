/* Rows of tiny_model.c for encoders whose tensors have BERT's names or names of their families.  Only tiny_model.c
 * includes it, after the macros that its rows use. */
#ifndef CALM_TESTS_TINY_ENCODER_ROWS_H
#define CALM_TESTS_TINY_ENCODER_ROWS_H

#define BERT_LINEAR(name, out, in) {name ".weight", out, in, ALWAYS}, {name ".bias", out, 0, ALWAYS}
#define BERT_NORM(name)            {name ".weight", 'D', 0, ALWAYS}, {name ".bias", 'D', 0, ALWAYS}
#define BERT_TABLE(name, rows)     {name "_embeddings.weight", rows, 'D', ALWAYS}
#define BERT_BLOCK(layer)                                                                                    \
    BERT_LINEAR(layer "attention.self.query", 'D', 'D'), BERT_LINEAR(layer "attention.self.key", 'D', 'D'),  \
    BERT_LINEAR(layer "attention.self.value", 'D', 'D'), BERT_LINEAR(layer "attention.output.dense", 'D', 'D'), \
    BERT_NORM(layer "attention.output.LayerNorm"), BERT_LINEAR(layer "intermediate.dense", 'M', 'D'),        \
    BERT_LINEAR(layer "output.dense", 'D', 'M'), BERT_NORM(layer "output.LayerNorm")
#define BERT(prefix)                                                                                         \
    BERT_TABLE(prefix "embeddings.word", 'V'), BERT_TABLE(prefix "embeddings.position", 'P'),                \
    BERT_TABLE(prefix "embeddings.token_type", 'T'), BERT_NORM(prefix "embeddings.LayerNorm"),               \
    BERT_BLOCK(prefix "encoder.layer.#.")

static const tensor_row bert[] = {BERT(""), BERT_LINEAR("pooler.dense", 'D', 'D'), {0}};
static const tensor_row bert_mlm[] = {BERT("bert."), BERT_LINEAR("cls.predictions.transform.dense", 'D', 'D'),
                                      BERT_NORM("cls.predictions.transform.LayerNorm"),
                                      {"cls.predictions.bias", 'V', 0, ALWAYS},
                                      {"cls.predictions.decoder.weight", 'V', 'D', UNTIED},
                                      {"cls.predictions.decoder.bias", 'V', 0, UNTIED}, {0}};

/* Encoders without a head. */
#define FEW_NORMS(name) {name ".weight", 'D', 0, ALWAYS}
static const tensor_row roberta[] = {BERT(""), BERT_LINEAR("pooler.dense", 'D', 'D'), {0}};
static const tensor_row distilbert[] = {
    BERT_TABLE("embeddings.word", 'V'), BERT_TABLE("embeddings.position", 'P'), BERT_NORM("embeddings.LayerNorm"),
    BERT_LINEAR("transformer.layer.#.attention.q_lin", 'D', 'D'),
    BERT_LINEAR("transformer.layer.#.attention.k_lin", 'D', 'D'),
    BERT_LINEAR("transformer.layer.#.attention.v_lin", 'D', 'D'),
    BERT_LINEAR("transformer.layer.#.attention.out_lin", 'D', 'D'), BERT_NORM("transformer.layer.#.sa_layer_norm"),
    BERT_LINEAR("transformer.layer.#.ffn.lin1", 'M', 'D'), BERT_LINEAR("transformer.layer.#.ffn.lin2", 'D', 'M'),
    BERT_NORM("transformer.layer.#.output_layer_norm"), {0}};
static const tensor_row mpnet[] = {
    BERT_TABLE("embeddings.word", 'V'), BERT_TABLE("embeddings.position", 'P'), BERT_NORM("embeddings.LayerNorm"),
    {"encoder.relative_attention_bias.weight", 'R', 'H', ALWAYS},
    BERT_LINEAR("encoder.layer.#.attention.attn.q", 'D', 'D'),
    BERT_LINEAR("encoder.layer.#.attention.attn.k", 'D', 'D'),
    BERT_LINEAR("encoder.layer.#.attention.attn.v", 'D', 'D'),
    BERT_LINEAR("encoder.layer.#.attention.attn.o", 'D', 'D'),
    BERT_NORM("encoder.layer.#.attention.LayerNorm"), BERT_LINEAR("encoder.layer.#.intermediate.dense", 'M', 'D'),
    BERT_LINEAR("encoder.layer.#.output.dense", 'D', 'M'), BERT_NORM("encoder.layer.#.output.LayerNorm"),
    BERT_LINEAR("pooler.dense", 'D', 'D'), {0}};
static const tensor_row modernbert[] = {
    {"embeddings.tok_embeddings.weight", 'V', 'D', ALWAYS}, FEW_NORMS("embeddings.norm"),
    {"layers.#.attn.Wqkv.weight", '3', 'D', ALWAYS}, {"layers.#.attn.Wo.weight", 'D', 'D', ALWAYS},
    {"layers.#.attn_norm.weight", 'D', 0, LATER}, FEW_NORMS("layers.#.mlp_norm"),
    {"layers.#.mlp.Wi.weight", 'G', 'D', ALWAYS}, {"layers.#.mlp.Wo.weight", 'D', 'M', ALWAYS}, FEW_NORMS("final_norm"),
    {0}};
static const tensor_row nomic_bert[] = {
    BERT_TABLE("embeddings.word", 'V'), BERT_TABLE("embeddings.token_type", 'T'), BERT_NORM("emb_ln"),
    {"encoder.layers.#.attn.Wqkv.weight", '3', 'D', ALWAYS},
    {"encoder.layers.#.attn.out_proj.weight", 'D', 'D', ALWAYS},
    BERT_NORM("encoder.layers.#.norm1"), {"encoder.layers.#.mlp.fc11.weight", 'M', 'D', ALWAYS},
    {"encoder.layers.#.mlp.fc12.weight", 'M', 'D', ALWAYS}, {"encoder.layers.#.mlp.fc2.weight", 'D', 'M', ALWAYS},
    BERT_NORM("encoder.layers.#.norm2"), {0}};
static const tensor_row gte[] = {
    BERT_TABLE("embeddings.word", 'V'), BERT_TABLE("embeddings.token_type", 'T'), BERT_NORM("embeddings.LayerNorm"),
    BERT_LINEAR("encoder.layer.#.attention.qkv_proj", '3', 'D'),
    BERT_LINEAR("encoder.layer.#.attention.o_proj", 'D', 'D'),
    BERT_NORM("encoder.layer.#.attn_ln"), {"encoder.layer.#.mlp.up_gate_proj.weight", 'G', 'D', ALWAYS},
    BERT_LINEAR("encoder.layer.#.mlp.down_proj", 'D', 'M'), BERT_NORM("encoder.layer.#.mlp_ln"), {0}};

#endif
