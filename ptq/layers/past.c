/* The state of earlier tokens. */
#include "ptq/layers/past.h"

#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/layers/latent.h"

/* Floats that a block keeps per token. */
typedef struct widths {
    size_t k, v, shared;
} widths;

/* Returns the floats of a block's recurrent state. */
static size_t state_of(const calm_config *model, size_t block)
{
    const calm_kind *kind = calm_kind_at(model, block, CALM_SUBLAYER_ATTENTION);
    /* Only mixers have a state: a feed-forward part reads one token. */
    return kind && kind->state ? kind->state(calm_config_at(model, block)) : 0;
}

static widths widths_of(const calm_config *model, size_t block)
{
    const calm_kind *kind = calm_kind_at(model, block, CALM_SUBLAYER_ATTENTION);
    const calm_config *config = calm_config_at(model, block);
    const size_t heads = config->n_kv * config->head_dim;
    /* Blocks without a mixer, with a recurrent state, or with the keys of another block keep no rows. */
    if (!kind || kind->state || config->kv == CALM_KV_SHARED)
        return (widths){0};
    /* Keys and values of all heads, and the shared rotary channels, are kept instead of the latents, so that no token
     * passes kv_b twice. */
    if (kind == &calm_kind_mla)
        return (widths){.k = calm_latent_kv_width(config), .shared = config->latent.rope};
    return (widths){.k = heads, .v = heads};
}

/* Allocates one matrix; NULL for width 0. */
static calm_status new_rows(calm_ctx *ctx, size_t room, size_t width, float **out)
{
    *out = NULL;
    return width ? calm_alloc_raw(ctx, ctx->out, out, room, width * sizeof **out, "past") : CALM_OK;
}

calm_status calm_past_init(calm_ctx *ctx, const calm_config *config, size_t room, calm_past *out)
{
    *out = (calm_past){.room = room};
    /* Carried floats belong to no single block. */
    CALM_TRY(new_rows(ctx, room, config->carried, &out->carried));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->blocks, config->n_blocks));
    for (size_t i = 0; i < config->n_blocks; i++) {
        const widths width = widths_of(config, i);
        CALM_TRY(new_rows(ctx, room, width.k, &out->blocks[i].k));
        CALM_TRY(new_rows(ctx, room, width.v, &out->blocks[i].v));
        CALM_TRY(new_rows(ctx, room, width.shared, &out->blocks[i].shared));
        CALM_TRY(new_rows(ctx, 1, state_of(config, i), &out->blocks[i].state));
    }
    return CALM_OK;
}

/* Returns the bytes of new_rows(). */
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
                 + rows_bytes(1, state_of(config, i));
    }
    return bytes;
}

float *calm_past_state(const calm_block *block, const calm_span *span)
{
    if (!span->past)
        return NULL;
    float *state = span->past->blocks[block->index].state;
    /* At the first token of a text; a convolution of one tap has no state. */
    if (state && span->past->n == 0)
        memset(state, 0, calm_block_kind(block, CALM_SUBLAYER_ATTENTION)->state(block->config) * sizeof *state);
    return state;
}
