/* Forward and backward pass of latent attention (MLA) over one window. */
#pragma once

#include "ptq/model/block_back.h"
#include "ptq/model/latent.h"

typedef struct calm_latent_tape {
    calm_latent rows;        /* values of the steps before the scores */
    float *context;          /* [T, h value] input of o           */
    calm_heads_kept kept;    /* probabilities, for short windows  */
} calm_latent_tape;

/* Computes y [T, D] = f(h) of the sublayer from h [T, D], on ctx's threads; the tape, which refers to `span`, is in
 * ctx->scratch. */
calm_status calm_latent_forward_tape(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, const float *h,
                                     const calm_span *span, float *y, calm_latent_tape *tape);

/* Backward pass from dy [T, D]: adds to the gradients of the linears and of both norms, and writes dh [T, D] (NULL: not
 * wanted). */
calm_status calm_latent_back(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, const float *h,
                             const calm_latent_tape *tape, const float *dy, const calm_block_grads *grads, float *dh);

/* Return the bytes of ctx->scratch of the tape for T tokens, and the peak of each pass in addition, workers
 * included. */
size_t calm_latent_tape_bytes(const calm_config *config, size_t n_tokens);
size_t calm_latent_forward_tape_bytes(const calm_config *config, size_t n_tokens, size_t n_threads);
size_t calm_latent_back_bytes(const calm_config *config, size_t n_tokens, size_t n_threads);
