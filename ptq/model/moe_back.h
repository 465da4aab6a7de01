/* Forward and backward pass of a block's mixture of experts over one window. */
#pragma once

#include "ptq/model/block_back.h"
#include "ptq/model/moe.h"

/* y [T, D] = the weighted experts and the shared one from the hidden rows x [T, D] that enter the sublayer, with
 * normalised rows h [T, D]; the routing is in ctx->scratch. */
calm_status calm_moe_forward_tape(calm_ctx *ctx, const calm_block *block, const float *x, const float *h,
                                  const calm_span *span, float *y, calm_routing *routing);

/* From dy [T, D] of that: gradients of router, shared expert, its gate, the experts and the norms in between are added
 * to, dh [T, D] is written; what goes to x by norms of the mixture's own is added to dx [T, D], which may be dy. */
calm_status calm_moe_back(calm_ctx *ctx, const calm_block *block, const calm_routing *routing, const float *x,
                          const float *h, size_t n_tokens, const float *dy, const calm_block_grads *grads, float *dh,
                          float *dx);

/* What the tape takes of ctx->scratch, and the most that each of the two holds besides, workers included. */
size_t calm_moe_tape_bytes(const calm_config *config, size_t n_tokens);
size_t calm_moe_forward_tape_bytes(const calm_config *config, size_t n_tokens, size_t expert_bytes, size_t n_threads);
size_t calm_moe_back_bytes(const calm_config *config, size_t n_tokens, size_t expert_bytes, size_t n_threads);
