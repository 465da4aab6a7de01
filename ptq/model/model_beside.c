/* Loads tensors of a block that are no linears: norms, vectors and other floats, the router of a mixture. */
#include "ptq/model/model_impl.h"

#include "ptq/arch/arch.h"
#include "ptq/arch/kind.h"
#include "ptq/weights/widen.h"

/* Makes "model.layers.3.MODULE" in ctx->scratch. */
static calm_status block_module(calm_ctx *ctx, const calm_model *model, size_t index, const char *module, char **out)
{
    return calm_strf(ctx, ctx->scratch, out, "%s%s.%zu.%s", model->prefix, model->config.arch->names->blocks, index,
                     module);
}

/* The tensor is checked also with `out` NULL, so that opening a model finds what loading would refuse. */
calm_status calm_model_load_vector(calm_ctx *ctx, const calm_model *model, const char *name, size_t n,
                                   const float **out)
{
    const calm_tensor *tensor;
    float *values;
    CALM_TRY(calm_safetensors_need_floats(ctx, model->tensors, name, 1, &n, &tensor));
    if (!out)
        return CALM_OK;
    CALM_TRY(CALM_NEW(ctx, ctx->out, values, n));
    CALM_TRY(calm_widen(ctx, model->tensors, tensor, values));
    *out = values;
    return CALM_OK;
}

calm_status calm_model_read_part(calm_ctx *ctx, const calm_model *model, const char *module, const char *part, size_t n,
                             const float **out)
{
    char *name;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s.%s", module, part));
    return calm_model_load_vector(ctx, model, name, n, out);
}

/* Loads a norm, `out` NULL: only checks it.  Adds 1 to weights that are stored as w - 1. */
calm_status calm_model_load_norm(calm_ctx *ctx, const calm_model *model, const char *module, size_t width,
                                 calm_norm *out)
{
    const calm_norm_kind kind = model->config.arch->norm;
    const float *w, *b = NULL;
    bool old = false;    /* the first BERT checkpoints use gamma and beta */
    /* RMSNorms have no bias, so only LayerNorms are searched for one. */
    if (kind == CALM_NORM_LAYER) {
        char *name;
        CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s.gamma", module));
        old = calm_safetensors_find(model->tensors, name) != NULL;
    }
    if (model->config.norm_bias)
        CALM_TRY(calm_model_read_part(ctx, model, module, old ? "beta" : "bias", width, out ? &b : NULL));
    CALM_TRY(calm_model_read_part(ctx, model, module, old ? "gamma" : "weight", width, out ? &w : NULL));
    if (!out)
        return CALM_OK;
    /* Added in float32 like in transformers, (1.0 + weight.float()); load_vector() has just allocated w, so it may be
     * changed. */
    for (size_t i = 0; kind == CALM_NORM_RMS_PLUS_ONE && i < width; i++)
        ((float *)(uintptr_t)w)[i] += 1;
    *out = (calm_norm){kind, model->config.norm_eps, width, w, b};
    return CALM_OK;
}

/* Reads a plain tensor of a sublayer; `out` NULL: only checks it. */
static calm_status read_plain(calm_ctx *ctx, const calm_model *model, const calm_kind_plain *plain, const char *name,
                              int n_dims, const size_t *shape, calm_norm *out)
{
    const calm_tensor *tensor;
    float *values;
    if (plain->form == CALM_PLAIN_FAMILY_NORM)
        CALM_TRY(calm_model_load_norm(ctx, model, name, shape[0], out));
    /* calm_model_load_norm() would add 1, or look for a bias, in some families. */
    if (plain->form == CALM_PLAIN_RMS_NORM && !out)
        return calm_model_read_part(ctx, model, name, "weight", shape[0], NULL);
    if (plain->form == CALM_PLAIN_RMS_NORM) {
        *out = (calm_norm){CALM_NORM_RMS, model->config.norm_eps, shape[0], NULL, NULL};
        CALM_TRY(calm_model_read_part(ctx, model, name, "weight", shape[0], &out->w));
    }
    /* The kind of sublayer fixes the epsilon of some norms, whatever config.json says. */
    if (out && plain->form != CALM_PLAIN_TENSOR && plain->eps > 0)
        out->eps = (float)plain->eps;
    if (plain->form != CALM_PLAIN_TENSOR)
        return CALM_OK;
    /* Shapes are those of the kind: vectors, kernels of convolutions. */
    CALM_TRY(calm_safetensors_need_floats(ctx, model->tensors, name, n_dims, shape, &tensor));
    if (!out)
        return CALM_OK;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, values, tensor->n_elements));
    CALM_TRY(calm_widen(ctx, model->tensors, tensor, values));
    /* block->plain holds norms and other tensors alike; of the others only w is read. */
    *out = (calm_norm){.width = tensor->n_elements, .w = values};
    return CALM_OK;
}

calm_status calm_model_read_norms(calm_ctx *ctx, const calm_model *model, size_t index, calm_sublayer sublayer,
                              calm_block *block)
{
    const calm_config *config = calm_config_at(&model->config, index);
    const calm_kind *kind = calm_kind_at(&model->config, index, sublayer);
    const calm_names *names = config->arch->names;
    char *module;
    /* A slot without a sublayer (kind NULL) has no norms either. */
    for (calm_norm_place place = 0; kind && place < CALM_N_NORM_PLACES; place++) {
        if (!calm_has_norm(config->arch, index, sublayer, place))
            continue;
        calm_norm *norm = block ? &block->norm[sublayer][place] : NULL;
        CALM_TRY(block_module(ctx, model, index, names->norm[sublayer][place], &module));
        CALM_TRY(calm_model_load_norm(ctx, model, module, config->hidden, norm));
    }
    for (size_t i = 0; kind && i < kind->n_plains; i++) {
        size_t shape[CALM_PLAIN_DIMS];
        int n_dims;
        const calm_kind_plain *plain = &kind->plains[i];
        /* A kind lists tensors that the family, or this block, may not have. */
        if (!calm_plain_shape(config, kind, plain->plain, shape, &n_dims))
            continue;
        CALM_TRY(block_module(ctx, model, index, names->plain[plain->plain], &module));
        CALM_TRY(read_plain(ctx, model, plain, module, n_dims, shape, block ? &block->plain[plain->plain] : NULL));
    }
    return CALM_OK;
}

/* Reads the choice bias, [E] or [1, E]. */
static calm_status read_choice_bias(calm_ctx *ctx, const calm_model *model, size_t index, calm_mixture *moe)
{
    const size_t shape[2] = {1, model->config.moe.n_experts};
    const calm_tensor *tensor;
    char *name;
    float *values;
    CALM_TRY(block_module(ctx, model, index, model->config.arch->names->moe.choice_bias, &name));
    tensor = calm_safetensors_find(model->tensors, name);
    /* Checkpoints differ in the rank; a missing tensor is reported with the shape [E]. */
    const int n_dims = tensor && tensor->n_dims == 2 ? 2 : 1;
    CALM_TRY(calm_safetensors_need_floats(ctx, model->tensors, name, n_dims, shape + 2 - n_dims, &tensor));
    if (!moe)
        return CALM_OK;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, values, tensor->n_elements));
    CALM_TRY(calm_widen(ctx, model->tensors, tensor, values));
    moe->choice_bias = values;
    return CALM_OK;
}

calm_status calm_model_read_router(calm_ctx *ctx, const calm_model *model, size_t index, calm_mixture *moe)
{
    const calm_config *config = &model->config;
    const calm_names *names = config->arch->names;
    /* The router has a row for each expert, the gate of the shared expert is a single row. */
    const size_t rows[2] = {config->moe.n_experts, 1};
    const char *const modules[2] = {names->moe.router, config->moe.shared_inner ? names->moe.shared_gate : NULL};
    for (int i = 0; i < 2; i++) {
        const calm_tensor *tensor;
        char *module;
        float *w;
        /* The family has no shared expert, or its shared expert has no gate. */
        if (!modules[i])
            continue;
        CALM_TRY(block_module(ctx, model, index, modules[i], &module));
        CALM_TRY(calm_strf(ctx, ctx->scratch, &module, "%s.weight", module));
        CALM_TRY(calm_safetensors_need_floats(ctx, model->tensors, module, 2,
                                              (const size_t[2]){rows[i], config->hidden}, &tensor));
        if (!moe)
            continue;
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, w, tensor->n_elements));
        CALM_TRY(calm_widen(ctx, model->tensors, tensor, w));
        *(i ? &moe->shared_gate : &moe->router) = w;
    }
    return config->moe.choice_bias ? read_choice_bias(ctx, model, index, moe) : CALM_OK;
}
