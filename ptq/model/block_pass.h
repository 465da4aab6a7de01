/* Forward and backward pass of one window through a block, to time it: buffers for the results, and the number of
 * operations. */
#pragma once

#include "ptq/model/block_back.h"

/* Forward and backward pass, in operations of the forward pass: each of its products has two backward.  Scores that are
 * computed again, since they were too many to be kept, are not counted. */
#define CALM_BLOCK_BOTH 3.0

/* Floating-point operations of one token's forward pass through a block that multiplies it with this many weights, in a
 * window of this many tokens; a multiply-add counts two.  Scores and contexts of attention are for half of a window, of
 * an encoder for the whole window; norms and activation functions are not counted. */
double calm_block_operations(const calm_config *config, double weights, double window);

/* The same of all tokens of a window through a dense block that was loaded. */
double calm_block_window_operations(const calm_block *block, size_t n_tokens);

/* Room for passes of a dense block: what leaves it, and gradients of its linears and norms. */
typedef struct calm_block_pass {
    const calm_block *block;
    const calm_rope *rope;
    float *z;                  /* [longest, D] */
    uint32_t *ids;             /* [longest] zeros, for families whose blocks read them */
    calm_block_grads grads;
} calm_block_pass;

/* In ctx->out, for windows of up to this many tokens.  `first_norm`: the gradient of the norm before attention is
 * wanted too, and with it one more product with each of q, k and v. */
calm_status calm_block_pass_new(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, size_t longest,
                                bool first_norm, calm_block_pass *out);

/* Run x [n_tokens, D] through it; `back`: and back, what leaves the block standing for its own gradient, any finite one
 * being as good.  All threads work on the window.  CALM_ENUMERIC: a value is not finite. */
calm_status calm_block_pass_run(calm_ctx *ctx, const calm_block_pass *pass, const float *x, size_t n_tokens, bool back);
