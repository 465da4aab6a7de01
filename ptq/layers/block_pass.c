/* Runs a window through a block and back, and counts its operations. */
#include "ptq/layers/block_pass.h"

#include "ptq/arch/arch.h"
#include "ptq/arch/kind.h"
#include "ptq/base/scope.h"
#include "ptq/tensor/bf16_product.h"

/* A weight costs a multiplication and an addition for each token. */
double calm_block_operations(const calm_config *config, double weights, double window)
{
    const calm_kind *mixer = calm_kind_dense(config, CALM_SUBLAYER_ATTENTION);
    return 2 * weights + (mixer && mixer->operations ? mixer->operations(config, window) : 0);
}

/* Counts loaded weights: experts are not loaded. */
double calm_block_window_operations(const calm_block *block, size_t n_tokens)
{
    double weights = 0;
    for (calm_role role = 0; role < CALM_N_ROLES; role++)
        if (block->weight[role].w)
            weights += (double)block->weight[role].out * (double)block->weight[role].in;
    return (double)n_tokens * calm_block_operations(block->config, weights, (double)n_tokens);
}

/* Allocates a norm's gradient; a norm that the block does not have has none. */
static calm_status new_norm(calm_ctx *ctx, const calm_norm *norm, float **out)
{
    return norm->w ? CALM_NEW(ctx, ctx->out, *out, norm->width) : CALM_OK;
}

calm_status calm_block_pass_new(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, size_t longest,
                                bool first_norm, calm_block_pass *out)
{
    calm_block_grads *grads = &out->grads;
    *out = (calm_block_pass){.block = block, .rope = rope};
    /* Gradients of the trained parameters: weights and norms. */
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->z, longest * block->config->hidden));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->ids, longest));
    /* CALM_NEW fills gradients with zeros, to which the backward pass adds. */
    for (calm_role role = 0; role < CALM_N_ROLES; role++)
        if (block->weight[role].w)
            CALM_TRY(CALM_NEW(ctx, ctx->out, grads->weight[role], block->weight[role].out * block->weight[role].in));
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
        for (calm_norm_place place = 0; place < CALM_N_NORM_PLACES; place++)
            if (first_norm || s != CALM_SUBLAYER_ATTENTION || place != CALM_NORM_IN)
                CALM_TRY(new_norm(ctx, &block->norm[s][place], &grads->norm[s][place]));
    for (calm_plain plain = 0; plain < CALM_N_PLAINS; plain++)
        CALM_TRY(new_norm(ctx, &block->plain[plain], &grads->plain[plain]));
    return CALM_OK;
}

calm_status calm_block_pass_run(calm_ctx *ctx, const calm_block_pass *pass, const float *x, size_t n_tokens, bool back)
{
    const calm_span span = {.n_tokens = n_tokens, .ids = pass->ids};
    calm_block_tape *tape;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_SCOPED_OPERANDS(ctx, back ? calm_bf16_of_steps(ctx->operands) : ctx->operands);
    CALM_TRY(calm_block_forward_tape(ctx, pass->block, pass->rope, x, &span, pass->z, &tape));
    return back ? calm_block_back(ctx, pass->block, pass->rope, tape, pass->z, &pass->grads, NULL) : CALM_OK;
}
