/* Derivatives of the kernels of vector.h, in float32, vectorised by the compiler.
 *
 * dy is d loss / d y of the result y, dx of the operand x.  Sums run over lanes in a fixed order, as there. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* dy[i] *= f'(x[i]) for f = silu, gelu, gelu_tanh, gelu_quick, relu (at 0: 0) and relu2. */
void calm_vec_silu_back(size_t n, const float *x, float *dy);
void calm_vec_gelu_back(size_t n, const float *x, float *dy);
void calm_vec_gelu_tanh_back(size_t n, const float *x, float *dy);
void calm_vec_gelu_quick_back(size_t n, const float *x, float *dy);
void calm_vec_relu_back(size_t n, const float *x, float *dy);
void calm_vec_relu2_back(size_t n, const float *x, float *dy);

/* Of y = calm_vec_clamped_glu from the operands gate and up: dup, and dgate in place of dy.  What is cut off has no
 * gradient. */
void calm_vec_clamped_glu_back(size_t n, float limit, float alpha, const float *gate, const float *up, float *dy,
                               float *dup);

/* Through y[i] = x[i] sigmoid(gate[i]): dgate[i] written, dy[i] becomes dx[i]. */
void calm_vec_sigmoid_mul_back(size_t n, const float *gate, const float *x, float *dy, float *dgate);

/* dy[i] *= f'(x[i]) for f = cap tanh(scale x / cap). */
void calm_vec_soft_cap_back(size_t n, float scale, float cap, const float *x, float *dy);

/* The same with scale 1 from its result y: dy[i] *= 1 - (y[i] / cap)^2. */
void calm_vec_soft_capped_back(size_t n, float cap, const float *y, float *dy);

/* dy[i] = p[i] (dy[i] - sum_j p[j] dy[j]): through a softmax whose row is p. */
void calm_vec_softmax_back(size_t n, const float *p, float *dy);

/* RMSNorm and LayerNorm of one row x [d]: dx from dy, in place allowed, and what the row adds to dweight and dbias [d].
 * Each of the three may be NULL: not wanted. */
void calm_vec_rmsnorm_back(size_t d, const float *x, const float *weight, float eps, const float *dy, float *dweight,
                           float *dx);
void calm_vec_layernorm_back(size_t d, const float *x, const float *weight, float eps, const float *dy, float *dweight,
                             float *dbias, float *dx);

/* lengths [n] = |x_t|, the root of the sum of squares, of n rows of `width` values that lie `stride` values apart; with
 * `add` each row continues the one that lengths has already, as one longer row. */
void calm_vec_lengths(size_t n, size_t width, size_t stride, const float *x, bool add, float *lengths);
