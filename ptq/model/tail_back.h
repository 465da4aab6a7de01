/* Forward and backward pass of the tail of a block (tail.h).
 *
 *   x' = s (x + RMSNorm(projection(act(gate x) * p)))      p of the token's id alone, so that nothing goes back to it
 *
 * The factor, the three linears and the norms are not learned: they have no gradients. */
#pragma once

#include "ptq/model/tail.h"

/* x [T, D] in place, as calm_tail_run; the tape is in ctx->scratch. */
calm_status calm_tail_forward_tape(calm_ctx *ctx, const calm_block *block, float *x, const calm_span *span,
                                   calm_tail_tape *tape);

/* d [n, D] in place from d loss / d x' to d loss / d x. */
calm_status calm_tail_back(calm_ctx *ctx, const calm_block *block, const calm_tail_tape *tape, size_t n, float *d);

/* What the tape takes of ctx->scratch for T tokens, and what either holds besides. */
size_t calm_tail_tape_bytes(const calm_config *config, size_t n_tokens);
size_t calm_tail_back_bytes(const calm_config *config, size_t n_tokens);
