/* Forward and backward pass of a gated or plain MLP, over the rows of a window or of an expert. */
#pragma once

#include "ptq/model/block_back.h"

typedef struct calm_mlp_tape {
    size_t n;       /* rows                                                          */
    const float *h; /* [n, D] what it read                                           */
    float *a, *b;   /* [n, M] what the activation function reads; the other factor   */
    float *g;       /* [n, M] input of down                                          */
} calm_mlp_tape;

/* out [n, D] from h [n, D], on ctx's threads; the tape is in ctx->scratch. */
calm_status calm_mlp_forward_tape(calm_ctx *ctx, const calm_config *config, const calm_weight weight[CALM_N_ROLES],
                                  const float *h, size_t n, float *out, calm_mlp_tape *tape);

/* From dy [n, D] of that: gradients of the linears (CALM_N_ROLES each, NULL: not wanted) are added to, dh [n, D] is
 * written, and lengths [n] (NULL: not wanted) of the gradient of a and b together. */
calm_status calm_mlp_back(calm_ctx *ctx, const calm_config *config, const calm_weight weight[CALM_N_ROLES],
                          const calm_mlp_tape *tape, const float *dy, float *const dweight[CALM_N_ROLES],
                          float *const dbias[CALM_N_ROLES], float *lengths, float *dh);

/* What the tape takes of ctx->scratch for n rows, and the most that each of the two holds besides; `expert`: of which
 * MLP (roles.h). */
size_t calm_mlp_tape_bytes(const calm_config *config, long expert, size_t n);
size_t calm_mlp_forward_tape_bytes(const calm_config *config, long expert, size_t n);
size_t calm_mlp_back_bytes(const calm_config *config, long expert, size_t n);

/* In place from the gradient of y = f(x) to that of x, over n values. */
void calm_activate_back(calm_activation activation, size_t n, const float *x, float *dy);
