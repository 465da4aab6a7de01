/* Forward and backward pass of latent attention (MLA) over one window, for learning. */
#pragma once

#include "ptq/model/block_back.h"
#include "ptq/model/latent.h"

typedef struct calm_latent_tape {
    calm_latent rows;        /* what precedes the scores          */
    float *context;          /* [T, h value] input of o           */
    calm_heads_kept kept;    /* of short windows                  */
} calm_latent_tape;

/* y [T, D] = f of the sublayer from h [T, D], on ctx's threads; the tape, which keeps `span`, is in ctx->scratch. */
calm_status calm_latent_forward_tape(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, const float *h,
                                     const calm_span *span, float *y, calm_latent_tape *tape);

/* From dy [T, D]: gradients of the linears and of both norms are added to, dh [T, D] is written (NULL: not wanted). */
calm_status calm_latent_back(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, const float *h,
                             const calm_latent_tape *tape, const float *dy, const calm_block_grads *grads, float *dh);

/* What the tape takes of ctx->scratch for T tokens, and the most that each of the two holds besides, with its workers.
 */
size_t calm_latent_tape_bytes(const calm_config *config, size_t n_tokens);
size_t calm_latent_forward_tape_bytes(const calm_config *config, size_t n_tokens, size_t n_threads);
size_t calm_latent_back_bytes(const calm_config *config, size_t n_tokens, size_t n_threads);
