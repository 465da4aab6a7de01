/* Forward and backward pass of a block. */
#include "cli/bench_backward.h"

#include "ptq/layers/block_pass.h"

/* Arguments of the timed pass. */
typedef struct backward {
    calm_block_pass pass;
    const float *x;
    size_t n_tokens;
} backward;

static calm_status run(calm_ctx *ctx, void *user)
{
    const backward *b = user;
    return calm_block_pass_run(ctx, &b->pass, b->x, b->n_tokens, true);
}

calm_status calm_bench_backward(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, const float *x,
                                size_t n_tokens, calm_bench_item *out)
{
    backward *b;
    CALM_TRY(CALM_NEW(ctx, ctx->out, b, 1));
    *b = (backward){.x = x, .n_tokens = n_tokens};
    CALM_TRY(calm_block_pass_new(ctx, block, rope, n_tokens, true, &b->pass));
    const double flops = CALM_BLOCK_BOTH * calm_block_window_operations(block, n_tokens);
    *out = (calm_bench_item){.name = "backward", .flops = flops, .run = run, .user = b};
    return CALM_OK;
}
