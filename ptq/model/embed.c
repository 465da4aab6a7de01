/* The input of block 0. */
#include "ptq/model/arch.h"
#include "ptq/model/model.h"
#include "ptq/tensor/vector.h"

/* Positions, types and the norm of an encoder. */
static calm_status finish_encoder(calm_ctx *ctx, const calm_model *model, const uint8_t *types, const calm_span *span,
                                  float *out)
{
    const calm_config *config = calm_model_config(model);
    const size_t width = config->hidden, sizes[2] = {config->max_positions, config->n_types};
    static const char *const tables[2] = {"position", "token_type"};
    calm_norm norm;
    float *row;
    char *name;
    /* Rows are looked up in the mapped tables one by one; no table is made float32 as a whole. */
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, row, width));
    for (int i = 0; i < 2; i++) {
        const size_t shape[2] = {sizes[i], width};
        const calm_tensor *table;
        CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%sembeddings.%s_embeddings.weight", calm_model_prefix(model),
                           tables[i]));
        CALM_TRY(calm_safetensors_need(ctx, calm_model_tensors(model), name, 2, shape, &table));
        for (size_t t = 0; t < span->n_tokens; t++) {
            const size_t position = span->positions ? span->positions[t] : t;
            const size_t index = i == 0 ? position : types ? types[t] : 0;
            /* Positions and types come with the tokens, which are untrusted. */
            if (index >= sizes[i])
                return calm_fail(ctx, CALM_EARG, "%s %zu of a token, but the model has %zu", i ? "type" : "position",
                                 index, sizes[i]);
            CALM_TRY(calm_tensor_part_to_f32(ctx, table, index * width, width, row));
            calm_vec_add(width, row, out + t * width);
        }
    }
    CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%sembeddings.LayerNorm", calm_model_prefix(model)));
    /* The norm is needed for this window alone, and workers have no ctx->out. */
    CALM_SCOPED_OUT(ctx, ctx->scratch);
    CALM_TRY(calm_model_load_norm(ctx, model, name, width, &norm));
    calm_norm_rows(&norm, out, span->n_tokens, out);
    return CALM_OK;
}

calm_status calm_model_embed(calm_ctx *ctx, const calm_model *model, const uint32_t *ids, const uint8_t *types,
                             const calm_span *span, float *out)
{
    const calm_config *config = calm_model_config(model);
    const size_t width = config->hidden;
    const calm_tensor *table;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_model_table(ctx, model, false, &table));
    for (size_t t = 0; t < span->n_tokens; t++) {
        if (ids[t] >= config->vocab)
            return calm_fail(ctx, CALM_EARG, "token id %u, but the vocabulary has %zu", ids[t], config->vocab);
        CALM_TRY(calm_tensor_part_to_f32(ctx, table, ids[t] * width, width, out + t * width));
    }
    /* Times 1 would change no bit; this spares a pass. */
    if (config->embedding_scale != 1)
        calm_vec_scale(span->n_tokens * width, config->embedding_scale, out);
    if (config->arch->bert)
        CALM_TRY(finish_encoder(ctx, model, types, span, out));
    calm_safetensors_release(calm_model_tensors(model), table);    /* each row touched brings its neighbours in */
    return CALM_OK;
}
