/* Gradients of the kernels of vector.h, in float32, vectorised by the compiler.
 *
 * dy is the gradient of the loss with respect to the result y, dx with respect to the operand x.  Sums run over
 * lanes in a fixed order, as in vector.h. */
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

/* Gradients of calm_vec_clamped_glu with the operands gate and up: writes dup, and replaces dy by dgate.  Clamped
 * values have gradient 0. */
void calm_vec_clamped_glu_back(size_t n, float limit, float alpha, const float *gate, const float *up, float *dy,
                               float *dup);

/* Gradients of y[i] = x[i] sigmoid(gate[i]): writes dgate[i], and replaces dy[i] by dx[i]. */
void calm_vec_sigmoid_mul_back(size_t n, const float *gate, const float *x, float *dy, float *dgate);

/* dy[i] *= f'(x[i]) for f = cap tanh(scale x / cap). */
void calm_vec_soft_cap_back(size_t n, float scale, float cap, const float *x, float *dy);

/* Computes the same for scale 1 from the result y: dy[i] *= 1 - (y[i] / cap)^2. */
void calm_vec_soft_capped_back(size_t n, float cap, const float *y, float *dy);

/* dy[i] = p[i] (dy[i] - sum_j p[j] dy[j]): gradient of a softmax with the result p. */
void calm_vec_softmax_back(size_t n, const float *p, float *dy);

/* Gradients of RMSNorm and LayerNorm for one row x [d]: writes dx (may be dy), and adds the row's share to dweight
 * and dbias [d].  Each of the three may be NULL. */
void calm_vec_rmsnorm_back(size_t d, const float *x, const float *weight, float eps, const float *dy, float *dweight,
                           float *dx);
void calm_vec_layernorm_back(size_t d, const float *x, const float *weight, float eps, const float *dy, float *dweight,
                             float *dbias, float *dx);

/* Computes lengths [n] = |x_t|, the Euclidean norm, of n rows of `width` values with a stride of `stride` values;
 * with `add`, each row continues the row whose length is in lengths. */
void calm_vec_lengths(size_t n, size_t width, size_t stride, const float *x, bool add, float *lengths);
