/* Forward pass with a tape, and backward pass, of the tail of a block. */
#include "ptq/layers/tail_back.h"

#include "ptq/arch/arch.h"
#include "ptq/base/scope.h"
#include "ptq/layers/mlp_back.h"
#include "ptq/layers/norm_back.h"
#include "ptq/tensor/vector.h"

calm_status calm_tail_forward_tape(calm_ctx *ctx, const calm_block *block, float *x, const calm_span *span,
                                   calm_tail_tape *tape)
{
    const size_t n = span->n_tokens, width = block->config->per_layer;
    *tape = (calm_tail_tape){NULL, NULL, NULL};
    if (block->tail.gate.w) {
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, tape->p, n * width));
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, tape->gate, n * width));
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, tape->raw, n * block->config->hidden));
    }
    return calm_tail_run(ctx, block, x, span, NULL, tape);
}

calm_status calm_tail_back(calm_ctx *ctx, const calm_block *block, const calm_tail_tape *tape, size_t n, float *d)
{
    const calm_tail *tail = &block->tail;
    const size_t hidden = block->config->hidden, width = block->config->per_layer;
    float *rows, *a;
    CALM_SCOPED_SCRATCH(ctx);
    if (!block->config->arch->names->tail)
        return CALM_OK;
    /* The factor multiplies both terms of the sum. */
    calm_vec_scale(n * hidden, tail->scale, d);
    if (!tape->gate)
        return CALM_OK;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, rows, n * hidden));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, a, n * width));
    CALM_TRY(calm_norm_back(ctx, &tail->norm, (calm_norm_rows_of){n, 1, hidden}, tape->raw, d, NULL, NULL, rows));
    /* The tail's parameters are not trained, so weights get no gradients. */
    CALM_TRY(calm_weight_back(ctx, &tail->projection, NULL, n, rows, NULL, NULL, false, a));
    /* The forward steps in reverse, each in place. */
    calm_vec_mul(n * width, tape->p, a);
    calm_activate_back(block->config->activation, n * width, tape->gate, a);
    /* x also has a direct path, whose gradient is in d. */
    return calm_weight_back(ctx, &tail->gate, NULL, n, a, NULL, NULL, true, d);
}

size_t calm_tail_tape_bytes(const calm_config *config, size_t n_tokens)
{
    const size_t width = config->per_layer;
    return width ? 2 * CALM_BYTES(float, n_tokens * width) + CALM_BYTES(float, n_tokens * config->hidden) : 0;
}

size_t calm_tail_back_bytes(const calm_config *config, size_t n_tokens)
{
    const size_t width = config->per_layer;
    /* rows, a, and in the forward pass a row of the table; in the backward pass the norm's buffers. */
    return width ? CALM_BYTES(float, n_tokens * config->hidden) + CALM_BYTES(float, n_tokens * width) +
                       calm_size_max(CALM_BYTES(float, width), calm_norm_back_scratch_bytes(config->hidden, n_tokens))
                 : 0;
}
