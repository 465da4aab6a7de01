/* Checks and loads the tail of a block (tail.h). */
#include "ptq/model/model_impl.h"

#include "ptq/arch/arch.h"

calm_status calm_model_part_name(calm_ctx *ctx, const calm_model *model, const size_t *block,
                                 const char *name, const char *end, char **out)
{
    if (!block)
        return calm_strf(ctx, ctx->scratch, out, "%s%s%s", model->prefix, name, end);
    return calm_strf(ctx, ctx->scratch, out, "%s%s.%zu.%s%s", model->prefix, model->config.arch->names->blocks, *block,
                     name, end);
}

calm_status calm_model_read_rows(calm_ctx *ctx, const calm_model *model, const char *name, const size_t shape[2],
                                 size_t first, size_t out, calm_weight *weight)
{
    const size_t in = shape[1];
    const calm_tensor *tensor;
    float *w;
    CALM_TRY(calm_safetensors_need_floats(ctx, model->tensors, name, 2, shape, &tensor));
    if (!weight)
        return CALM_OK;
    /* Only some rows, since the linear is that of all blocks. */
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, w, out * in));
    CALM_TRY(calm_tensor_part_to_f32(ctx, tensor, first * in, out * in, w));
    /* The float32 copy replaces the mapped pages. */
    calm_safetensors_release(model->tensors, tensor);
    *weight = (calm_weight){.name = "a linear outside of the sublayers", .out = out, .in = in, .w = w};
    return CALM_OK;
}

/* Reads the model's table and linear of all blocks. */
static calm_status read_inputs(calm_ctx *ctx, const calm_model *model, size_t index, calm_tail *tail)
{
    const calm_config *config = &model->config;
    const calm_tail_names *names = config->arch->names->tail;
    const size_t width = config->per_layer, all = config->n_blocks * width;
    const calm_tensor *table;
    char *name;
    CALM_TRY(calm_model_part_name(ctx, model, NULL, names->table, ".weight", &name));
    CALM_TRY(calm_safetensors_need_floats(ctx, model->tensors, name, 2, (const size_t[2]){config->per_layer_rows, all},
                                          &table));
    CALM_TRY(calm_model_part_name(ctx, model, NULL, names->context, ".weight", &name));
    /* Rows index P .. (index + 1) P - 1 of the linear are the block's C_b (tail.h). */
    CALM_TRY(calm_model_read_rows(ctx, model, name, (const size_t[2]){all, config->hidden}, index * width, width,
                       tail ? &tail->context : NULL));
    CALM_TRY(calm_model_part_name(ctx, model, NULL, names->context_norm, "", &name));
    /* Looked up by token like the embedding, since it may be larger than all blocks together. */
    if (tail)
        tail->table = table;
    return calm_model_load_norm(ctx, model, name, width, tail ? &tail->context_norm : NULL);
}

calm_status calm_model_read_tail(calm_ctx *ctx, const calm_model *model, size_t index, calm_tail *tail)
{
    const calm_config *config = &model->config;
    const calm_tail_names *names = config->arch->names->tail;
    const size_t width = config->per_layer;
    const float *scale;
    char *name;
    if (!names)
        return CALM_OK;
    /* A family without the factor multiplies by 1. */
    if (tail)
        *tail = (calm_tail){.scale = 1};
    /* Every block has the factor; only small models have per-layer inputs. */
    if (names->scale) {
        CALM_TRY(calm_model_part_name(ctx, model, &index, names->scale, "", &name));
        CALM_TRY(calm_model_load_vector(ctx, model, name, 1, tail ? &scale : NULL));
        if (tail)
            tail->scale = *scale;
    }
    if (!width)
        return CALM_OK;
    CALM_TRY(calm_model_part_name(ctx, model, &index, names->gate, ".weight", &name));
    CALM_TRY(calm_model_read_rows(ctx, model, name, (const size_t[2]){width, config->hidden}, 0, width,
                       tail ? &tail->gate : NULL));
    CALM_TRY(calm_model_part_name(ctx, model, &index, names->projection, ".weight", &name));
    CALM_TRY(calm_model_read_rows(ctx, model, name, (const size_t[2]){config->hidden, width}, 0, config->hidden,
                       tail ? &tail->projection : NULL));
    /* The norm of the projection's output. */
    CALM_TRY(calm_model_part_name(ctx, model, &index, names->norm, "", &name));
    CALM_TRY(calm_model_load_norm(ctx, model, name, config->hidden, tail ? &tail->norm : NULL));
    return read_inputs(ctx, model, index, tail);
}

size_t calm_model_tail_bytes(const calm_config *config)
{
    const calm_tail_names *names = config->arch->names->tail;
    const size_t width = config->per_layer, matrix = CALM_BYTES(float, width * config->hidden);
    if (!names)
        return 0;
    /* In the order of the allocations: the factor, three matrices, two norms. */
    return (names->scale ? CALM_BYTES(float, 1) : 0) +
           (width ? 3 * matrix + CALM_BYTES(float, config->hidden) + CALM_BYTES(float, width) : 0);
}
