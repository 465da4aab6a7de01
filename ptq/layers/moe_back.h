/* Forward and backward pass of a block's mixture of experts over one window. */
#pragma once

#include "ptq/layers/block_back.h"
#include "ptq/layers/moe.h"

/* Computes y [T, D], the sum of the weighted experts and the shared expert, from the sublayer's input x [T, D] and its
 * normalised rows h [T, D]; the routing is in ctx->scratch. */
calm_status calm_moe_forward_tape(calm_ctx *ctx, const calm_block *block, const float *x, const float *h,
                                  const calm_span *span, float *y, calm_routing *routing);

/* Backward pass from dy [T, D]: adds to the gradients of router, shared expert, its gate, experts and the mixture's
 * norms, and writes dh [T, D]; adds to dx [T, D], which may be dy, the gradient that reaches x through those norms. */
calm_status calm_moe_back(calm_ctx *ctx, const calm_block *block, const calm_routing *routing, const float *x,
                          const float *h, size_t n_tokens, const float *dy, const calm_block_grads *grads, float *dh,
                          float *dx);

/* Return the bytes of ctx->scratch of the tape, and the peak of each pass in addition, workers included. */
size_t calm_moe_tape_bytes(const calm_config *config, size_t n_tokens);
size_t calm_moe_forward_tape_bytes(const calm_config *config, size_t n_tokens, size_t expert_bytes, size_t n_threads);
size_t calm_moe_back_bytes(const calm_config *config, size_t n_tokens, size_t expert_bytes, size_t n_threads);
