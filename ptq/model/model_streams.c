/* Checks and loads the tensors of residual streams (streams.h). */
#include "ptq/model/model_impl.h"

#include "ptq/arch/arch.h"

/* Reads MODULE.weight [out, in] of a block, or with `block` NULL of the model; `weight` NULL: only checks it. */
static calm_status read_matrix(calm_ctx *ctx, const calm_model *model, const size_t *block, const char *module,
                               size_t out, size_t in, calm_weight *weight)
{
    char *name;
    CALM_TRY(calm_model_part_name(ctx, model, block, module, ".weight", &name));
    return calm_model_read_rows(ctx, model, name, (const size_t[2]){out, in}, 0, out, weight);
}

/* Reads the norm MODULE of a block; `norm` NULL: only checks it. */
static calm_status read_norm(calm_ctx *ctx, const calm_model *model, size_t block, const char *module, calm_norm *norm)
{
    char *name;
    CALM_TRY(calm_model_part_name(ctx, model, &block, module, "", &name));
    return calm_model_load_norm(ctx, model, name, model->config.hidden, norm);
}

/* Reads NAME.0, NAME.1, ... of the model, one for each stream except the first. */
static calm_status read_square(calm_ctx *ctx, const calm_model *model, const char *name, calm_weight **out)
{
    const size_t n = model->config.streams.n - 1, hidden = model->config.hidden;
    if (out)
        CALM_TRY(CALM_NEW(ctx, ctx->out, *out, n));
    /* Numbered from 0, which belongs to the second stream. */
    for (size_t i = 0; i < n; i++) {
        char *module;
        CALM_TRY(calm_strf(ctx, ctx->scratch, &module, "%s.%zu", name, i));
        CALM_TRY(read_matrix(ctx, model, NULL, module, hidden, hidden, out ? *out + i : NULL));
    }
    return CALM_OK;
}

/* Reads the weights before attention and of the low-rank branch. */
static calm_status read_begin(calm_ctx *ctx, const calm_model *model, size_t index, calm_streams *streams)
{
    const calm_config *config = &model->config;
    const calm_stream_names *names = config->arch->names->streams;
    const size_t n = config->streams.n, hidden = config->hidden, rank = config->streams.rank;
    /* Coefficients are plain arrays in calm_streams: of the linear only w is kept. */
    calm_weight predict;
    CALM_TRY(read_matrix(ctx, model, &index, names->predict, n * n, n, streams ? &predict : NULL));
    if (streams)
        streams->predict = predict.w;
    CALM_TRY(read_matrix(ctx, model, &index, names->left, rank, hidden, streams ? &streams->left : NULL));
    CALM_TRY(read_matrix(ctx, model, &index, names->right, hidden, rank, streams ? &streams->right : NULL));
    CALM_TRY(read_norm(ctx, model, index, names->laurel_norm, streams ? &streams->laurel_norm : NULL));
    /* Only the first block makes the other streams from its input. */
    return index == 0 ? read_square(ctx, model, names->split, streams ? &streams->split : NULL) : CALM_OK;
}

/* Reads the weights after the MLP. */
static calm_status read_end(calm_ctx *ctx, const calm_model *model, size_t index, calm_streams *streams)
{
    const calm_config *config = &model->config;
    const calm_stream_names *names = config->arch->names->streams;
    const size_t n = config->streams.n;
    calm_weight correct;
    char *name;
    CALM_TRY(read_matrix(ctx, model, &index, names->correct, n, n, streams ? &correct : NULL));
    if (streams)
        streams->correct = correct.w;
    CALM_TRY(calm_model_part_name(ctx, model, &index, names->scale, "", &name));
    /* Checkpoints have the tensor even where it is not used. */
    CALM_TRY(calm_model_load_vector(ctx, model, name, config->hidden,
                                    streams && config->streams.scale ? &streams->scale : NULL));
    /* Only the last block merges the streams for the final norm. */
    return index + 1 == config->n_blocks ? read_square(ctx, model, names->merge, streams ? &streams->merge : NULL)
                                         : CALM_OK;
}

calm_status calm_model_read_streams(calm_ctx *ctx, const calm_model *model, size_t index, calm_sublayer sublayer,
                                    calm_streams *streams)
{
    const calm_config *config = &model->config;
    const calm_stream_names *names = config->arch->names->streams;
    calm_weight router;
    CALM_SCOPED_SCRATCH(ctx);
    /* Both sublayers use it, and each may be loaded alone. */
    CALM_TRY(read_norm(ctx, model, index, names->router_norm, streams ? &streams->router_norm : NULL));
    CALM_TRY(read_matrix(ctx, model, &index, names->router, config->streams.n, config->hidden,
                         streams ? &router : NULL));
    if (streams)
        streams->router = router.w;
    return sublayer == CALM_SUBLAYER_ATTENTION ? read_begin(ctx, model, index, streams)
                                               : read_end(ctx, model, index, streams);
}

size_t calm_model_streams_bytes(const calm_config *config, size_t index, calm_sublayer sublayer)
{
    const size_t n = config->streams.n, hidden = config->hidden, row = CALM_BYTES(float, hidden);
    if (!n)
        return 0;
    const bool begin = sublayer == CALM_SUBLAYER_ATTENTION;
    const bool squares = begin ? index == 0 : index + 1 == config->n_blocks;
    /* In the order of the allocations: router and its norm, then the sublayer's weights. */
    size_t bytes = row + CALM_BYTES(float, n * hidden);
    if (begin)
        bytes += CALM_BYTES(float, n * n * n) + 2 * CALM_BYTES(float, config->streams.rank * hidden) + row;
    else
        bytes += CALM_BYTES(float, n * n) + (config->streams.scale ? row : 0);
    if (squares)
        bytes += CALM_BYTES(calm_weight, n - 1) + (n - 1) * CALM_BYTES(float, hidden * hidden);
    return bytes;
}
