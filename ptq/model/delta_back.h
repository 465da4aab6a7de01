/* Backward pass of the gated delta rule, of its gates and of the short convolution. */
#pragma once

#include "ptq/model/convolution.h"
#include "ptq/model/delta.h"

/* From do [T, n_value_heads d_v]: dq, dk and dv, which lie in rows `stride` apart as q, k and v do, and ddecay and
 * dbeta [T, n_value_heads], all written.  `states` are those that calm_delta_rule gave for chunks of `chunk` tokens. */
typedef struct calm_delta_grads {
    float *q, *k, *v;
    float *decay, *beta;
} calm_delta_grads;
calm_status calm_delta_rule_back(calm_ctx *ctx, const calm_delta_shape *shape, const calm_delta_rows *rows,
                                 size_t chunk, const float *states, const float *dout, const calm_delta_grads *grads);

/* What each thread holds of its scratch meanwhile. */
size_t calm_delta_rule_back_bytes(const calm_delta_shape *shape, size_t n_tokens, size_t chunk);

/* In place: ddecay becomes the gradient of what calm_delta_gates had in `decay` before, dbeta likewise; decay and beta
 * are what it gave.  da_log and ddt [n_heads] are added to; NULL: not wanted. */
void calm_delta_gates_back(size_t n_tokens, size_t n_heads, const float *a_log, const float *decay, const float *beta,
                           float *ddecay, float *dbeta, float *da_log, float *ddt);

/* Through calm_convolution_run without its function: dx [T, stride] written from dy [T, n_channels]; dw [n_channels,
 * width] and dbias are added to; each of the three may be NULL: not wanted.  x as it read it. */
calm_status calm_convolution_back(calm_ctx *ctx, const calm_convolution *conv, const float *x, size_t stride,
                                  size_t n_tokens, const float *dy, float *dw, float *dbias, float *dx);
