/* The input of block 0. */
#include "ptq/arch/arch.h"
#include "ptq/base/threads.h"
#include "ptq/model/forward.h"
#include "ptq/model/model.h"
#include "ptq/tensor/vector.h"

/* The tokens of a window, and the tables' row numbers for them. */
typedef struct lookup {
    const uint32_t *ids;
    const uint8_t *types;
    const calm_span *span;
} lookup;

/* Returns the row of the position table for token t; `counted` counts the tokens before it that are no padding. */
static size_t position_row(const calm_config *config, const lookup *of, size_t t, size_t *counted)
{
    if (!config->position_base)
        return of->span->positions ? of->span->positions[t] : t;
    /* Where padding has its own row, only other tokens are counted, by their ids, like in transformers. */
    const bool padding = of->ids[t] == config->position_base - 1;
    return padding ? config->position_base - 1 : config->position_base + (*counted)++;
}

/* Adds to each token a row of a table [rows, D]: that of its position, or of its type. */
static calm_status add_rows(calm_ctx *ctx, const calm_model *model, const char *module, bool position,
                            const lookup *of, float *out)
{
    const calm_config *config = calm_model_config(model);
    const size_t width = config->hidden, rows = position ? config->max_positions : config->n_types;
    const calm_tensor *table;
    size_t counted = 0;
    float *row;
    char *name;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, row, width));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s%s.weight", calm_model_prefix(model), module));
    CALM_TRY(calm_safetensors_need(ctx, calm_model_tensors(model), name, 2, (const size_t[2]){rows, width}, &table));
    /* Rows are read one by one from the mapped tables; no table is converted as a whole. */
    for (size_t t = 0; t < of->span->n_tokens; t++) {
        const size_t index = position ? position_row(config, of, t, &counted) : of->types ? of->types[t] : 0;
        /* Positions and types come with the tokens, which are untrusted. */
        if (index >= rows)
            return calm_fail(ctx, CALM_EARG, "%s %zu of a token, but the model has %zu", position ? "position" : "type",
                             index, rows);
        CALM_TRY(calm_tensor_part_to_f32(ctx, table, index * width, width, row));
        calm_vec_add(width, row, out + t * width);
    }
    return CALM_OK;
}

/* Adds position and type embeddings of an encoder, and applies its norm. */
static calm_status finish_encoder(calm_ctx *ctx, const calm_model *model, const lookup *of, float *out)
{
    const calm_config *config = calm_model_config(model);
    /* Families with a rotary embedding have no table of positions, some have none of types. */
    const calm_ends *ends = config->arch->ends;
    calm_norm norm;
    char *name;
    if (ends->positions)
        CALM_TRY(add_rows(ctx, model, ends->positions, true, of, out));
    if (ends->types && config->n_types)
        CALM_TRY(add_rows(ctx, model, ends->types, false, of, out));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s%s", calm_model_prefix(model), ends->norm));
    /* The norm is only needed for this window, and workers have no ctx->out. */
    CALM_SCOPED_OUT(ctx, ctx->scratch);
    CALM_TRY(calm_model_load_norm(ctx, model, name, config->hidden, &norm));
    calm_norm_rows(&norm, out, of->span->n_tokens, out);
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
    /* A factor of 1 would change no bit; this saves a pass. */
    if (config->embedding_scale != 1)
        calm_vec_scale(span->n_tokens * width, config->embedding_scale, out);
    if (config->arch->ends)
        CALM_TRY(finish_encoder(ctx, model, &(lookup){ids, types, span}, out));
    /* Reading a row also maps its neighbours.  A tied head reads all of them for the next token. */
    if (!ctx->decode && !ctx->resident)
        calm_safetensors_release(calm_model_tensors(model), table);
    return CALM_OK;
}

/* Windows to embed, one per task. */
typedef struct embed_task {
    const calm_model *model;
    const calm_batch *batch;
} embed_task;

/* Fills the rows of window i; each task writes only its own. */
static calm_status embed_window(calm_ctx *ctx, size_t i, void *user)
{
    const embed_task *task = user;
    const calm_batch *batch = task->batch;
    const calm_windows *windows = batch->windows;
    const calm_span span = calm_batch_span(batch, i);
    const size_t at = windows->begin[span.window], row = calm_batch_row(batch, i);
    float *x;
    /* In memory x points into the matrix, and put does nothing; for a file x is a copy in scratch memory. */
    CALM_TRY(calm_row_store_get(ctx, &batch->hidden, row, span.n_tokens, &x));
    CALM_TRY(
        calm_model_embed(ctx, task->model, windows->ids + at, windows->types ? windows->types + at : NULL, &span, x));
    return calm_row_store_put(ctx, &batch->hidden, row, span.n_tokens, x);
}

calm_status calm_batch_embed(calm_ctx *ctx, const calm_model *model, const calm_windows *windows, size_t first,
                             size_t n, calm_arena *arena, const char *spill_dir, calm_batch *out)
{
    embed_task task = {model, out};
    CALM_TRY(calm_batch_open(ctx, calm_model_config(model), windows, first, n, arena, spill_dir, out));
    const calm_status status = calm_parallel_for(ctx, n, embed_window, &task);
    /* The caller need not close the batch after a failure. */
    if (status != CALM_OK)
        calm_batch_close(out);
    return status;
}
