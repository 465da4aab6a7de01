/* Lists the tensors of a synthetic checkpoint: names, shapes and the spread of their values.
 *
 * Linears have spread 1/sqrt(inputs), so that a normalized input gives outputs of order 1 and the residual grows as
 * the root of the number of blocks.  Embeddings have 0.02, as at the start of training; norms are around 1. */
#include "tests/tools/synth.h"

#include <assert.h>
#include <math.h>

#define EMBEDDING_SPREAD 0.02f
#define NORM_SPREAD 0.1f
#define BIAS_SPREAD 0.1f

/* A list while it is made. */
typedef struct listing {
    calm_ctx *ctx;
    const synth_shape *shape;
    calm_dtype dtype;
    synth_tensor *tensors;
    size_t n, capacity;
} listing;

/* Returns the largest number of tensors of a block plus those outside of blocks. */
static size_t most_tensors(const synth_shape *shape, size_t blocks)
{
    return blocks * (28 + 3 * shape->experts) + 8;
}

/* Joins a name in ctx->out; "" without memory, which synth_list then reports. */
static const char *join(listing *list, const char *a, const char *b)
{
    char *joined;
    return calm_strf(list->ctx, list->ctx->out, &joined, "%s%s", a, b) == CALM_OK ? joined : "";
}

/* prefix + "index." */
static const char *numbered(listing *list, const char *prefix, size_t index)
{
    char *name;
    return calm_strf(list->ctx, list->ctx->out, &name, "%s%zu.", prefix, index) == CALM_OK ? name : "";
}

static void add(listing *list, const char *prefix, const char *name, size_t rows, size_t cols, float mean,
                float spread)
{
    assert(list->n < list->capacity);
    list->tensors[list->n++] = (synth_tensor){
        .tensor = {.name = join(list, prefix, name), .dtype = list->dtype, .n_dims = cols ? 2 : 1,
                   .shape = {rows, cols}},
        .mean = mean, .spread = spread};
}

static void add_linear(listing *list, const char *prefix, const char *name, size_t out, size_t in, bool bias)
{
    add(list, prefix, join(list, name, ".weight"), out, in, 0, (float)(1 / sqrt((double)in)));
    if (bias)
        add(list, prefix, join(list, name, ".bias"), out, 0, 0, BIAS_SPREAD);
}

static void add_norm(listing *list, const char *prefix, const char *name, size_t width)
{
    const float mean = list->shape->family->flags & SYNTH_GEMMA ? 0 : 1;
    add(list, prefix, join(list, name, ".weight"), width, 0, mean, NORM_SPREAD);
    list->tensors[list->n - 1].outliers = width == list->shape->hidden;
}

/* Adds gate, up and down under `prefix`. */
static void add_mlp(listing *list, const char *prefix, size_t inner)
{
    const size_t hidden = list->shape->hidden;
    add_linear(list, prefix, "gate_proj", inner, hidden, false);
    add_linear(list, prefix, "up_proj", inner, hidden, false);
    add_linear(list, prefix, "down_proj", hidden, inner, false);
}

static void add_experts(listing *list, const char *prefix)
{
    add_linear(list, prefix, "mlp.gate", list->shape->experts, list->shape->hidden, false);
    if (list->shape->family->latent) {
        add(list, prefix, "mlp.gate.e_score_correction_bias", list->shape->experts, 0, 0, BIAS_SPREAD);
        add_mlp(list, join(list, prefix, "mlp.shared_experts."), list->shape->expert_inner);
    }
    for (size_t e = 0; e < list->shape->experts; e++)
        add_mlp(list, numbered(list, join(list, prefix, "mlp.experts."), e), list->shape->expert_inner);
}

static void add_latent(listing *list, const char *prefix)
{
    const synth_latent *latent = list->shape->family->latent;
    const size_t hidden = list->shape->hidden, heads = list->shape->heads;
    add_linear(list, prefix, "self_attn.q_a_proj", latent->q_rank, hidden, false);
    add_norm(list, prefix, "self_attn.q_a_layernorm", latent->q_rank);
    add_linear(list, prefix, "self_attn.q_b_proj", heads * (latent->nope + latent->rope), latent->q_rank, false);
    add_linear(list, prefix, "self_attn.kv_a_proj_with_mqa", latent->kv_rank + latent->rope, hidden, false);
    add_norm(list, prefix, "self_attn.kv_a_layernorm", latent->kv_rank);
    add_linear(list, prefix, "self_attn.kv_b_proj", heads * (latent->nope + latent->value), latent->kv_rank, false);
    add_linear(list, prefix, "self_attn.o_proj", hidden, heads * latent->value, false);
}

static void add_attention(listing *list, const char *prefix)
{
    const synth_shape *shape = list->shape;
    const unsigned flags = shape->family->flags;
    const size_t q = shape->heads * shape->head_dim, kv = shape->kv * shape->head_dim;
    const bool bias = flags & SYNTH_QKV_BIAS, wide = flags & SYNTH_WIDE_NORM;
    if (flags & SYNTH_FUSED)
        add_linear(list, prefix, "self_attn.qkv_proj", q + 2 * kv, shape->hidden, false);
    else {
        add_linear(list, prefix, "self_attn.q_proj", q, shape->hidden, bias);
        add_linear(list, prefix, "self_attn.k_proj", kv, shape->hidden, bias);
        add_linear(list, prefix, "self_attn.v_proj", kv, shape->hidden, bias);
    }
    add_linear(list, prefix, "self_attn.o_proj", shape->hidden, q, false);
    if (wide || flags & SYNTH_HEAD_NORM) {
        add_norm(list, prefix, "self_attn.q_norm", wide ? q : shape->head_dim);
        add_norm(list, prefix, "self_attn.k_norm", wide ? kv : shape->head_dim);
    }
}

static void list_decoder(listing *list, size_t blocks)
{
    const synth_shape *shape = list->shape;
    add(list, "", "model.embed_tokens.weight", shape->vocab, shape->hidden, 0, EMBEDDING_SPREAD);
    for (size_t b = 0; b < blocks; b++) {
        const char *prefix = numbered(list, "model.layers.", b);
        if (shape->family->latent)
            add_latent(list, prefix);
        else
            add_attention(list, prefix);
        if (shape->family->flags & SYNTH_EXPERTS && !(shape->family->latent && b < shape->family->latent->dense))
            add_experts(list, prefix);
        else if (shape->family->flags & SYNTH_FUSED) {
            add_linear(list, prefix, "mlp.gate_up_proj", 2 * shape->inner, shape->hidden, false);
            add_linear(list, prefix, "mlp.down_proj", shape->hidden, shape->inner, false);
        } else
            add_mlp(list, join(list, prefix, "mlp."), shape->inner);
        for (const char *const *norm = shape->family->norms; *norm; norm++)
            add_norm(list, prefix, *norm, shape->hidden);
    }
    add_norm(list, "model.", "norm", shape->hidden);
    if (!shape->tied)
        add_linear(list, "", "lm_head", shape->vocab, shape->hidden, false);
}

static void add_layer_norm(listing *list, const char *prefix, const char *name)
{
    add_norm(list, prefix, name, list->shape->hidden);
    add(list, prefix, join(list, name, ".bias"), list->shape->hidden, 0, 0, BIAS_SPREAD);
}

/* all-MiniLM-L6-v2 also stores the buffer of position ids. */
static void list_encoder(listing *list, size_t blocks)
{
    const size_t hidden = list->shape->hidden, inner = list->shape->inner, positions = list->shape->positions;
    add(list, "", "embeddings.position_ids", 1, positions, 0, 0);
    list->tensors[0].tensor.dtype = CALM_I64;
    add(list, "", "embeddings.word_embeddings.weight", list->shape->vocab, hidden, 0, EMBEDDING_SPREAD);
    add(list, "", "embeddings.position_embeddings.weight", positions, hidden, 0, EMBEDDING_SPREAD);
    add(list, "", "embeddings.token_type_embeddings.weight", 2, hidden, 0, EMBEDDING_SPREAD);
    add_layer_norm(list, "embeddings.", "LayerNorm");
    for (size_t b = 0; b < blocks; b++) {
        const char *prefix = numbered(list, "encoder.layer.", b);
        add_linear(list, prefix, "attention.self.query", hidden, hidden, true);
        add_linear(list, prefix, "attention.self.key", hidden, hidden, true);
        add_linear(list, prefix, "attention.self.value", hidden, hidden, true);
        add_linear(list, prefix, "attention.output.dense", hidden, hidden, true);
        add_layer_norm(list, prefix, "attention.output.LayerNorm");
        add_linear(list, prefix, "intermediate.dense", inner, hidden, true);
        add_linear(list, prefix, "output.dense", hidden, inner, true);
        add_layer_norm(list, prefix, "output.LayerNorm");
    }
    add_linear(list, "pooler.", "dense", hidden, hidden, true);
}

calm_status synth_list(calm_ctx *ctx, const synth_shape *shape, size_t blocks, calm_dtype dtype, synth_tensor **out,
                       size_t *n)
{
    listing list = {.ctx = ctx, .shape = shape, .dtype = dtype, .capacity = most_tensors(shape, blocks)};
    CALM_TRY(CALM_NEW(ctx, ctx->out, list.tensors, list.capacity));
    if (shape->family->flags & SYNTH_ENCODER)
        list_encoder(&list, blocks);
    else
        list_decoder(&list, blocks);
    for (size_t i = 0; i < list.n; i++) {
        calm_tensor *tensor = &list.tensors[i].tensor;
        if (!calm_tensor_size(tensor, &tensor->n_elements, &tensor->bytes))
            return calm_fail(ctx, CALM_EARG, "tensor %s: its size overflows", tensor->name);
    }
    *out = list.tensors;
    *n = list.n;
    return ctx->status;
}
