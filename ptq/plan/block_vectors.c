/* The vectors of a block with their tensors' names. */
#include "ptq/plan/block_vectors.h"

#include "ptq/arch/kind.h"

/* The most vectors: norms with biases at every place, norms of q and k, a bias per linear. */
#define MOST_VECTORS (2 * CALM_N_SUBLAYERS * CALM_N_NORM_PLACES + 2 * CALM_N_PLAINS + CALM_N_ROLES)

typedef struct listing {
    const calm_model *model;
    const char *block;    /* "model.layers.0" */
    calm_block_vector *of;
    size_t n;
} listing;

calm_dtype calm_stored_dtype(const calm_model *model, const char *tensor)
{
    const calm_tensor *found = calm_safetensors_find(calm_model_tensors(model), tensor);
    return found ? found->dtype : CALM_BF16;
}

/* Adds a vector if the block has it; module: within the block; NULL: `name` is the tensor's name already. */
static calm_status add(calm_ctx *ctx, listing *to, calm_block_vector vector, const char *module, const char *part)
{
    char *name;
    if (!*vector.at)
        return CALM_OK;
    CALM_TRY(calm_strf(ctx, ctx->out, &name, "%s.%s", module, part));
    vector.name = name;
    vector.dtype = calm_stored_dtype(to->model, name);
    to->of[to->n++] = vector;
    return CALM_OK;
}

/* Adds weight and bias of a norm; `as` has kind and place. */
static calm_status add_norm(calm_ctx *ctx, listing *to, calm_norm *norm, const char *name, calm_block_vector as)
{
    char *module;
    if (!norm->w)
        return CALM_OK;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &module, "%s.%s", to->block, name));
    as.n = norm->width;
    as.at = &norm->w;
    as.offset = norm->kind == CALM_NORM_RMS_PLUS_ONE ? 1 : 0;
    CALM_TRY(add(ctx, to, as, module, "weight"));
    as.kind = CALM_VECTOR_NORM_BIAS;
    as.at = &norm->b;
    as.offset = 0;
    return add(ctx, to, as, module, "bias");
}

/* Adds the norms within a sublayer. */
static calm_status add_plains(calm_ctx *ctx, listing *to, const calm_kind *kind, calm_block *block)
{
    const calm_names *names = block->config->arch->names;
    for (size_t i = 0; kind && i < kind->n_plains; i++) {
        const calm_plain plain = kind->plains[i].plain;
        if (kind->plains[i].form != CALM_PLAIN_TENSOR)
            CALM_TRY(add_norm(ctx, to, &block->plain[plain], names->plain[plain],
                              (calm_block_vector){.kind = CALM_VECTOR_PLAIN, .plain = plain}));
    }
    return CALM_OK;
}

calm_status calm_block_vectors(calm_ctx *ctx, const calm_model *model, calm_block *block, calm_block_vector **out,
                               size_t *n)
{
    const calm_names *names = calm_model_config(model)->arch->names;
    listing to = {.model = model};
    char *prefix;
    CALM_TRY(calm_model_block_name(ctx, model, block->index, &prefix));
    to.block = prefix;
    CALM_TRY(CALM_NEW(ctx, ctx->out, to.of, MOST_VECTORS));
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
        for (calm_norm_place place = 0; place < CALM_N_NORM_PLACES; place++)
            CALM_TRY(add_norm(ctx, &to, &block->norm[s][place], names->norm[s][place],
                              (calm_block_vector){.kind = CALM_VECTOR_NORM, .sublayer = s, .place = place}));
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
        CALM_TRY(add_plains(ctx, &to, calm_block_kind(block, s), block));
    for (calm_role role = 0; role < CALM_N_ROLES; role++) {
        calm_weight *weight = &block->weight[role];
        CALM_TRY(add(ctx, &to, (calm_block_vector){.kind = CALM_VECTOR_BIAS, .role = role, .n = weight->out,
                                                   .at = &weight->bias}, weight->name, "bias"));
    }
    *out = to.of;
    *n = to.n;
    return CALM_OK;
}

calm_status calm_block_vectors_set(calm_ctx *ctx, const calm_model *model, const calm_vectors *vectors,
                                   calm_block *block)
{
    calm_block_vector *all;
    size_t n;
    if (!vectors->count)
        return CALM_OK;
    CALM_TRY(calm_block_vectors(ctx, model, block, &all, &n));
    for (size_t i = 0; i < n; i++) {
        /* By name; the store may have vectors of tensors that this block lacks, which are ignored. */
        const calm_named_vector *learned = calm_vectors_find(vectors, all[i].name);
        float *values;
        if (!learned)
            continue;
        if (learned->n != all[i].n)
            return calm_fail(ctx, CALM_EFORMAT, "%s: %zu values, but the store has %zu", all[i].name, all[i].n,
                             learned->n);
        /* A copy, because other plans may share the float model's array. */
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, values, all[i].n));
        for (size_t j = 0; j < all[i].n; j++)
            values[j] = learned->values[j] + all[i].offset;
        *all[i].at = values;
    }
    return CALM_OK;
}
