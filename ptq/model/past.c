/* What tokens leave for those after them. */
#include "ptq/model/past.h"

#include <string.h>

#include "ptq/model/arch.h"
#include "ptq/model/latent.h"

/* Floats per token that a block keeps. */
typedef struct widths {
    size_t k, v, shared, inputs;
} widths;

static widths widths_of(const calm_config *model, size_t block)
{
    const calm_kind *kind = calm_kind_at(model, block, CALM_SUBLAYER_ATTENTION);
    const calm_config *config = calm_config_at(model, block);
    const size_t heads = config->n_kv * config->head_dim;
    /* Blocks of a feed-forward part alone, and those that read what another block has carried on. */
    if (!kind || (!kind->replays && config->kv == CALM_KV_SHARED))
        return (widths){0};
    /* A recurrence or a convolution runs over all inputs again. */
    if (kind->replays)
        return (widths){.inputs = config->hidden};
    /* Keys and values of all heads, and the rotary channels that heads share, are kept in place of the latent rows: no
     * token passes through kv_b twice. */
    if (kind == &calm_kind_mla)
        return (widths){.k = calm_latent_kv_width(config), .shared = config->latent.rope};
    return (widths){.k = heads, .v = heads};
}

/* One matrix; of no width none. */
static calm_status new_rows(calm_ctx *ctx, size_t room, size_t width, float **out)
{
    *out = NULL;
    return width ? calm_alloc_raw(ctx, ctx->out, out, room, width * sizeof **out, "past") : CALM_OK;
}

calm_status calm_past_init(calm_ctx *ctx, const calm_config *config, size_t room, calm_past *out)
{
    *out = (calm_past){.room = room};
    /* What blocks carry from one to the next lies outside them. */
    CALM_TRY(new_rows(ctx, room, config->carried, &out->carried));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->blocks, config->n_blocks));
    for (size_t i = 0; i < config->n_blocks; i++) {
        const widths width = widths_of(config, i);
        CALM_TRY(new_rows(ctx, room, width.k, &out->blocks[i].k));
        CALM_TRY(new_rows(ctx, room, width.v, &out->blocks[i].v));
        CALM_TRY(new_rows(ctx, room, width.shared, &out->blocks[i].shared));
        CALM_TRY(new_rows(ctx, room, width.inputs, &out->blocks[i].inputs));
    }
    return CALM_OK;
}

/* As new_rows allocates them. */
static size_t rows_bytes(size_t room, size_t width)
{
    return width ? CALM_BYTES(float, room * width) : 0;
}

size_t calm_past_bytes(const calm_config *config, size_t room)
{
    size_t bytes = rows_bytes(room, config->carried) + CALM_BYTES(calm_past_block, config->n_blocks);
    for (size_t i = 0; i < config->n_blocks; i++) {
        const widths width = widths_of(config, i);
        bytes += rows_bytes(room, width.k) + rows_bytes(room, width.v) + rows_bytes(room, width.shared)
                 + rows_bytes(room, width.inputs);
    }
    return bytes;
}

calm_status calm_past_replay(calm_ctx *ctx, const calm_kind *kind, const calm_block *block, const calm_rope *rope,
                             const float *h, const calm_span *span, float *out)
{
    const size_t width = block->config->hidden, before = span->past->n, n = span->n_tokens;
    float *inputs = span->past->blocks[block->index].inputs, *all;
    calm_span whole = *span;
    CALM_SCOPED_SCRATCH(ctx);
    memcpy(inputs + before * width, h, n * width * sizeof *h);
    /* A window of all tokens, as if there had been no past. */
    whole.n_tokens = before + n;
    whole.positions = NULL;
    whole.past = NULL;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, all, whole.n_tokens * width));
    CALM_TRY(kind->run(ctx, block, rope, inputs, &whole, all, NULL));
    memcpy(out, all + before * width, n * width * sizeof *out);
    return CALM_OK;
}
