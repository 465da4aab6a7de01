/* Forward and backward pass of latent attention (MLA) over one window. */
#pragma once

#include "ptq/arch/kind.h"
#include "ptq/layers/latent.h"

typedef struct calm_latent_tape {
    calm_latent rows;        /* values of the steps before the scores */
    float *context;          /* [T, h value] input of o           */
    calm_heads_kept kept;    /* probabilities, for short windows  */
} calm_latent_tape;

/* Members of calm_kind_back: the forward pass, and the backward pass with dx ignored, on ctx's threads.  `tape`: a
 * calm_latent_tape, which refers to the span, with arrays in ctx->scratch. */
calm_status calm_latent_forward_tape(calm_ctx *ctx, const calm_kind_pass *pass, float *y, void *tape);
calm_status calm_latent_back(calm_ctx *ctx, const calm_kind_pass *pass, const void *tape, const float *dy,
                             const calm_block_grads *grads, float *dh, float *dx);

/* Return the bytes of ctx->scratch of the tape for T tokens, and the peak of each pass in addition, workers
 * included. */
size_t calm_latent_tape_bytes(const calm_config *config, size_t n_tokens);
size_t calm_latent_forward_tape_bytes(const calm_config *config, size_t n_tokens, size_t n_threads);
size_t calm_latent_back_bytes(const calm_config *config, size_t n_tokens, size_t n_threads);
