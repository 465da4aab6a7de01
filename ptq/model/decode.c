/* Decoding, token by token. */
#include "ptq/model/decode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/model/forward.h"
#include "ptq/tensor/vector.h"
#include "ptq/weights/row_linear.h"

/* The experts of a block, which stay in memory. */
typedef struct experts {
    calm_weight (*weight)[CALM_N_ROLES];    /* [n_experts]; NULL: the block is dense */
} experts;

struct calm_decoder {
    calm_arena arena;        /* owns all memory below */
    const calm_model *model;
    calm_block *blocks;      /* [n_blocks] */
    experts *experts;        /* [n_blocks] */
    calm_rope rope;
    calm_head head;
    calm_weight table;       /* the head's matrix as a linear without bias */
    calm_past past;
    uint32_t *ids, *positions;    /* [room] ids of all tokens; 0, 1, ... */
};

/* ---- weights ---- */

/* A calm_expert_fn for blocks whose experts are in memory. */
static calm_status find_expert(void *user, calm_ctx *ctx, size_t block, size_t expert, calm_weight weight[CALM_N_ROLES])
{
    const experts *of = user;
    (void)ctx;
    memcpy(weight, of[block].weight[expert], sizeof of[block].weight[expert]);
    return CALM_OK;
}

/* Loads all experts of a block once, and replaces its loader by a look-up in memory. */
static calm_status load_experts(calm_ctx *ctx, calm_decoder *d, size_t block)
{
    calm_mixture *moe = &d->blocks[block].moe;
    const size_t n = calm_model_config(d->model)->moe.n_experts;
    if (!moe->router)
        return CALM_OK;
    CALM_TRY(CALM_NEW(ctx, ctx->out, d->experts[block].weight, n));
    for (size_t e = 0; e < n; e++)
        CALM_TRY(moe->load(moe->user, ctx, block, e, d->experts[block].weight[e]));
    moe->load = find_expert;
    moe->user = d->experts;
    return CALM_OK;
}

/* Loads all weights and tables for texts of up to `room` tokens into the decoder's arena. */
static calm_status load(calm_ctx *ctx, calm_decoder *d, size_t room)
{
    const calm_config *config = calm_model_config(d->model);
    CALM_SCOPED_OUT(ctx, &d->arena);
    CALM_TRY(CALM_NEW(ctx, ctx->out, d->blocks, config->n_blocks));
    CALM_TRY(CALM_NEW(ctx, ctx->out, d->experts, config->n_blocks));
    CALM_TRY(CALM_NEW(ctx, ctx->out, d->ids, room));
    CALM_TRY(CALM_NEW(ctx, ctx->out, d->positions, room));
    /* Explicit positions, since a span of new tokens does not begin at position 0. */
    for (size_t t = 0; t < room; t++)
        d->positions[t] = (uint32_t)t;
    for (size_t i = 0; i < config->n_blocks; i++) {
        CALM_TRY(calm_model_load_block(ctx, d->model, i, &d->blocks[i]));
        CALM_TRY(load_experts(ctx, d, i));
    }
    CALM_TRY(calm_rope_init(ctx, config, room, &d->rope));
    CALM_TRY(calm_model_load_head(ctx, d->model, &d->head));
    CALM_TRY(calm_model_load_table(ctx, d->model, !config->tied, &d->table));
    return calm_past_init(ctx, config, room, &d->past);
}

calm_status calm_decoder_open(calm_ctx *ctx, const calm_model *model, size_t room, calm_decoder **out)
{
    *out = NULL;
    if (calm_model_config(model)->arch->encoder)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s is an encoder (%s), which predicts no next token",
                         calm_model_dir(model), calm_model_class(model));
    CALM_SCOPED_SCRATCH(ctx);
    CALM_SCOPED_DECODER(decoder);
    decoder = calloc(1, sizeof *decoder);
    if (!decoder)
        return calm_fail(ctx, CALM_ENOMEM, "%s: out of memory", calm_model_dir(model));
    decoder->model = model;
    CALM_TRY(load(ctx, decoder, room));
    *out = decoder;
    decoder = NULL;
    return CALM_OK;
}

void calm_decoder_close(calm_decoder *decoder)
{
    if (!decoder)
        return;
    calm_arena_clear(&decoder->arena);
    free(decoder);
}

/* ---- a step ---- */

/* Runs tokens past.n .. past.n + n - 1 through all blocks and the final norm; copies the row of the last one. */
static calm_status run_rows(calm_ctx *ctx, calm_decoder *d, size_t n, float *last)
{
    size_t begin[2] = {0, n};
    const calm_windows windows = {.ids = d->ids + d->past.n, .begin = begin, .n = 1, .longest = n,
                                  .positions = d->positions + d->past.n};
    const size_t width = d->head.hidden;
    calm_batch batch;
    CALM_SCOPED_ARENA(arena);
    CALM_TRY(calm_batch_embed(ctx, d->model, &windows, 0, 1, &arena, NULL, &batch));
    batch.past = &d->past;
    for (size_t i = 0; i < calm_model_config(d->model)->n_blocks; i++)
        CALM_TRY(calm_batch_block(ctx, &d->blocks[i], &d->rope, &batch, NULL));
    /* Rows are in memory, so there is no file to close. */
    CALM_TRY(calm_batch_norm(ctx, &d->head.norm, &batch));
    memcpy(last, batch.hidden.data + (n - 1) * width, width * sizeof *last);
    d->past.n += n;
    return CALM_OK;
}

/* Does the same as calm_head_multiply(), with the matrix in memory. */
static calm_status multiply_table(calm_ctx *ctx, const calm_decoder *d, float *x, float *logits)
{
    const calm_head *head = &d->head;
    CALM_TRY(calm_weight_apply(ctx, &d->table, x, 1, logits));
    if (head->logit_scale != 0)
        calm_vec_scale(head->vocab, head->logit_scale, logits);
    if (head->bias)
        calm_vec_add(head->vocab, head->bias, logits);
    if (head->logit_cap > 0)
        calm_vec_soft_cap(head->vocab, 1, head->logit_cap, logits);
    return CALM_OK;
}

calm_status calm_decoder_run(calm_ctx *ctx, calm_decoder *decoder, const uint32_t *ids, size_t n, float *logits)
{
    const calm_config *config = calm_model_config(decoder->model);
    const size_t before = decoder->past.n;
    float *last;
    CALM_SCOPED_SCRATCH(ctx);
    if (n == 0 || n > decoder->past.room - before)
        return calm_fail(ctx, CALM_EARG, "%zu tokens after %zu: expected at most %zu in all", n, before,
                         decoder->past.room);
    memcpy(decoder->ids + before, ids, n * sizeof *ids);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, last, decoder->head.hidden));
    /* Keys that were rotated with other tables are invalid. */
    if (before && calm_rope_differs(config, before, before + n))
        decoder->past.n = 0;
    if (run_rows(ctx, decoder, before + n - decoder->past.n, last) == CALM_OK)
        return multiply_table(ctx, decoder, last, logits);
    /* A refused id changes no state: the text stays as it was. */
    decoder->past.n = before;
    return ctx->status;
}

calm_status calm_decoder_best(calm_ctx *ctx, const float *logits, size_t vocab, uint32_t *out)
{
    size_t best = vocab;
    for (size_t v = 0; v < vocab; v++)
        /* NaN is never chosen. */
        if (best == vocab ? !isnan(logits[v]) : logits[v] > logits[best])
            best = v;
    if (best == vocab)
        return calm_fail(ctx, CALM_ENUMERIC, "none of the %zu logits is a number", vocab);
    *out = (uint32_t)best;
    return CALM_OK;
}

/* ---- what a token reads ---- */

/* Returns the bytes of the linears that exist. */
static double weights_bytes(const calm_weight weight[CALM_N_ROLES])
{
    double bytes = 0;
    for (calm_role role = 0; role < CALM_N_ROLES; role++) {
        const calm_gemv_matrix matrix = calm_row_linear_matrix(&weight[role]);
        bytes += weight[role].w ? (double)calm_gemv_bytes(&matrix) : 0;
    }
    return bytes;
}

double calm_decoder_token_bytes(const calm_decoder *decoder)
{
    const calm_config *config = calm_model_config(decoder->model);
    const calm_gemv_matrix table = calm_row_linear_matrix(&decoder->table);
    double bytes = (double)calm_gemv_bytes(&table);
    /* A token uses top_k experts; all experts of a block have the same size. */
    for (size_t i = 0; i < config->n_blocks; i++) {
        bytes += weights_bytes(decoder->blocks[i].weight) + weights_bytes(decoder->blocks[i].moe.shared);
        if (decoder->experts[i].weight)
            bytes += (double)config->moe.top_k * weights_bytes(decoder->experts[i].weight[0]);
    }
    return bytes;
}
