/* Forward and backward pass of a block. */
#include "cli/bench_backward.h"

#include <math.h>

#include "ptq/base/scope.h"
#include "ptq/base/threads.h"
#include "ptq/model/block_back.h"

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

calm_status calm_bench_backward_seconds(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, const float *x,
                                        size_t n_tokens, long long repeats, double *best)
{
    const calm_span span = {.n_tokens = n_tokens};
    calm_block_grads grads;
    float *z;
    CALM_TRY(new_grads(ctx, block, &grads));
    CALM_TRY(CALM_NEW(ctx, ctx->out, z, n_tokens * block->config->hidden));
    *best = INFINITY;
    for (long long i = 0; i < repeats; i++) {
        calm_block_tape *tape;
        CALM_SCOPED_SCRATCH(ctx);
        const double begun = calm_seconds();
        CALM_TRY(calm_block_forward_tape(ctx, block, rope, x, &span, z, &tape));
        /* The output as its own gradient: any finite one will do. */
        CALM_TRY(calm_block_back(ctx, block, rope, tape, z, &grads, NULL));
        *best = fmin(*best, calm_seconds() - begun);
    }
    return CALM_OK;
}

double calm_bench_backward_flops(const calm_block *block, size_t n_tokens)
{
    const calm_config *config = block->config;
    double per_token = 0;
    for (calm_role role = 0; role < CALM_N_ROLES; role++)
        per_token += 6.0 * (double)block->weight[role].out * (double)block->weight[role].in;
    const double keys = (double)(n_tokens + 1) / 2;
    return (double)n_tokens * (per_token + 3.5 * 4.0 * keys * (double)(config->n_heads * config->head_dim));
}
