/* Backward pass of the gated delta rule, of its gates and of the short convolution. */
#pragma once

#include "ptq/layers/convolution.h"
#include "ptq/layers/delta.h"

/* Backward pass of calm_delta_rule from dout [T, n_value_heads d_v]: writes the gradients of q, k and v, rows `stride`
 * apart, and of decay and beta [T, n_value_heads].  `states`: from calm_delta_rule with the same `chunk`. */
typedef struct calm_delta_grads {
    float *q, *k, *v;
    float *decay, *beta;
} calm_delta_grads;
calm_status calm_delta_rule_back(calm_ctx *ctx, const calm_delta_shape *shape, const calm_delta_rows *rows,
                                 size_t chunk, const float *states, const float *dout, const calm_delta_grads *grads);

/* Returns the bytes of scratch of each thread meanwhile. */
size_t calm_delta_rule_back_bytes(const calm_delta_shape *shape, size_t n_tokens, size_t chunk);

/* Backward of calm_delta_gates, whose outputs are decay and beta: turns ddecay and dbeta in place into the gradients of
 * its inputs; adds to da_log and ddt [n_heads] (NULL: not wanted). */
void calm_delta_gates_back(size_t n_tokens, size_t n_heads, const float *a_log, const float *decay, const float *beta,
                           float *ddecay, float *dbeta, float *da_log, float *ddt);

/* Backward of calm_convolution_run without its activation function, x its input: writes dx [T, stride] from dy
 * [T, n_channels]; adds to dw [n_channels, width] and dbias.  Each of the three may be NULL: not wanted. */
calm_status calm_convolution_back(calm_ctx *ctx, const calm_convolution *conv, const float *x, size_t stride,
                                  size_t n_tokens, const float *dy, float *dw, float *dbias, float *dx);
