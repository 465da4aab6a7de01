/* Forward and backward pass of one window through a block, for timing: buffers for the results, and the number of
 * operations. */
#pragma once

#include "ptq/layers/block_back.h"

/* Operations of forward and backward pass as a multiple of the forward pass's: each product has two in the backward
 * pass.  Recomputed scores are not counted. */
#define CALM_BLOCK_BOTH 3.0

/* Returns the floating-point operations of one token's forward pass through a block, which multiplies it with `weights`
 * weights, in a window of `window` tokens; a multiply-add counts as two.  Attention counts half of the window, in an
 * encoder the whole window; norms and activation functions are not counted. */
double calm_block_operations(const calm_config *config, double weights, double window);

/* Returns the operations of all tokens of a window through a loaded dense block. */
double calm_block_window_operations(const calm_block *block, size_t n_tokens);

/* Buffers for passes through a dense block: its output, and gradients of its linears and norms. */
typedef struct calm_block_pass {
    const calm_block *block;
    const calm_rope *rope;
    float *z;                  /* [longest, D] output */
    uint32_t *ids;             /* [longest] token ids 0, for families whose blocks read them */
    calm_block_grads grads;
} calm_block_pass;

/* Allocates the buffers in ctx->out for windows of up to `longest` tokens.  `first_norm`: also compute the gradient of
 * the norm before attention, which needs one more product with each of q, k and v. */
calm_status calm_block_pass_new(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, size_t longest,
                                bool first_norm, calm_block_pass *out);

/* Runs x [n_tokens, D] through the block; with `back` also the backward pass, with the output in place of its gradient,
 * since the time does not depend on it.  All threads work on the window.  CALM_ENUMERIC: a value is not finite. */
calm_status calm_block_pass_run(calm_ctx *ctx, const calm_block_pass *pass, const float *x, size_t n_tokens, bool back);
