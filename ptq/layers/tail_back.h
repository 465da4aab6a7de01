/* Forward and backward pass of the tail of a block (tail.h).
 *
 *   x' = s (x + RMSNorm(projection(act(gate x) * p)))      p depends only on the token's id, and has no gradient
 *
 * The factor, the three linears and the norms are not trained, and have no gradients. */
#pragma once

#include "ptq/layers/tail.h"

/* Runs the tail in place on x [T, D], as calm_tail_run; the tape is in ctx->scratch. */
calm_status calm_tail_forward_tape(calm_ctx *ctx, const calm_block *block, float *x, const calm_span *span,
                                   calm_tail_tape *tape);

/* Turns d [n, D] in place from the gradient of x' into that of x. */
calm_status calm_tail_back(calm_ctx *ctx, const calm_block *block, const calm_tail_tape *tape, size_t n, float *d);

/* Return the bytes of ctx->scratch of the tape for T tokens, and those of either pass in addition. */
size_t calm_tail_tape_bytes(const calm_config *config, size_t n_tokens);
size_t calm_tail_back_bytes(const calm_config *config, size_t n_tokens);
