/* Forward and backward pass of a gated or plain MLP, over the rows of a window or of an expert. */
#pragma once

#include "ptq/layers/block_back.h"

typedef struct calm_mlp_tape {
    size_t n;       /* rows                                                          */
    const float *h; /* [n, D] input                                                  */
    float *a, *b;   /* [n, M] input of the activation function; factor of its output */
    float *g;       /* [n, M] input of down                                          */
} calm_mlp_tape;

/* Computes out [n, D] from h [n, D], on ctx's threads; the tape is in ctx->scratch. */
calm_status calm_mlp_forward_tape(calm_ctx *ctx, const calm_config *config, const calm_weight weight[CALM_N_ROLES],
                                  const float *h, size_t n, float *out, calm_mlp_tape *tape);

/* Backward pass from dy [n, D]: adds to the gradients of the linears (NULL: not wanted), and writes dh [n, D] and
 * lengths [n] (NULL: not wanted), the norm of each row of the gradient of a and b together. */
calm_status calm_mlp_back(calm_ctx *ctx, const calm_config *config, const calm_weight weight[CALM_N_ROLES],
                          const calm_mlp_tape *tape, const float *dy, float *const dweight[CALM_N_ROLES],
                          float *const dbias[CALM_N_ROLES], float *lengths, float *dh);

/* Return the bytes of ctx->scratch of the tape for n rows, and the peak of each pass in addition; `expert`: number of
 * the expert, or CALM_NO_EXPERT (roles.h). */
size_t calm_mlp_tape_bytes(const calm_config *config, long expert, size_t n);
size_t calm_mlp_forward_tape_bytes(const calm_config *config, long expert, size_t n);
size_t calm_mlp_back_bytes(const calm_config *config, long expert, size_t n);

/* Turns dy [n], the gradient of y = f(x), into that of x, in place. */
void calm_activate_back(calm_activation activation, size_t n, const float *x, float *dy);
