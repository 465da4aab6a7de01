/* Forward and backward pass of a block. */
#include "cli/bench_backward.h"

#include "ptq/base/scope.h"
#include "ptq/model/block_back.h"

/* What is timed, and its results. */
typedef struct backward {
    const calm_block *block;
    const calm_rope *rope;
    const float *x;
    size_t n_tokens;
    calm_block_grads grads;
    float *z;
} backward;

/* Room for the gradients of a dense block. */
static calm_status new_grads(calm_ctx *ctx, const calm_block *block, calm_block_grads *out)
{
    *out = (calm_block_grads){.router = NULL};
    for (calm_role role = 0; role < CALM_N_ROLES; role++)
        if (block->weight[role].w)
            CALM_TRY(CALM_NEW(ctx, ctx->out, out->weight[role], block->weight[role].out * block->weight[role].in));
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
        CALM_TRY(CALM_NEW(ctx, ctx->out, out->norm[s][CALM_NORM_IN], block->config->hidden));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->q_norm, block->q_norm.width));
    return CALM_NEW(ctx, ctx->out, out->k_norm, block->k_norm.width);
}

/* One pass over one window: all threads work on it. */
static calm_status run(calm_ctx *ctx, void *user)
{
    const backward *b = user;
    const calm_span span = {.n_tokens = b->n_tokens};
    calm_block_tape *tape;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_block_forward_tape(ctx, b->block, b->rope, b->x, &span, b->z, &tape));
    /* The output as its own gradient: any finite one will do. */
    return calm_block_back(ctx, b->block, b->rope, tape, b->z, &b->grads, NULL);
}

/* Multiply-adds count two: a product forward is two backward, and attention's scores are computed again. */
static double flops(const calm_block *block, size_t n_tokens)
{
    const calm_config *config = block->config;
    double per_token = 0;
    for (calm_role role = 0; role < CALM_N_ROLES; role++)
        per_token += 6.0 * (double)block->weight[role].out * (double)block->weight[role].in;
    const double keys = (double)(n_tokens + 1) / 2;
    return (double)n_tokens * (per_token + 3.5 * 4.0 * keys * (double)(config->n_heads * config->head_dim));
}

calm_status calm_bench_backward(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, const float *x,
                                size_t n_tokens, calm_bench_item *out)
{
    backward *b;
    CALM_TRY(CALM_NEW(ctx, ctx->out, b, 1));
    *b = (backward){.block = block, .rope = rope, .x = x, .n_tokens = n_tokens};
    CALM_TRY(new_grads(ctx, block, &b->grads));
    CALM_TRY(CALM_NEW(ctx, ctx->out, b->z, n_tokens * block->config->hidden));
    *out = (calm_bench_item){.name = "backward", .flops = flops(block, n_tokens), .run = run, .user = b};
    return CALM_OK;
}
