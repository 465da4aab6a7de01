/* Element-wise and row kernels of the forward pass, in float32, vectorised by the compiler.
 *
 * Sums run over a fixed number of interleaved lanes that are added in a fixed order, so a row's result depends on its
 * values and length alone. */
#pragma once

#include <stddef.h>

/* y[i] += x[i]. */
void calm_vec_add(size_t n, const float *x, float *y);

/* y[i] += a x[i]. */
void calm_vec_axpy(size_t n, float a, const float *x, float *y);

/* y[i] *= a. */
void calm_vec_scale(size_t n, float a, float *y);

/* Computes x[i] = exp(scale * (x[i] - max x)) for n >= 1 values and returns their sum: a softmax row before the
 * division. */
float calm_vec_softmax_numerators(size_t n, float scale, float *x);

/* Return the maximum of x [n], n >= 1, and the first index of the maximum. */
float calm_vec_max(size_t n, const float *x);
size_t calm_vec_argmax(size_t n, const float *x);

/* Computes out[i] = exp(x[i] - shift) within 2 units in the last place; returns the sum in double.  Below -87.3 the
 * result is 0, from 88 on exp(88); NaN stays NaN.  In place allowed. */
double calm_vec_exp_sum(size_t n, float shift, const float *x, float *out);

/* Returns the sum of a[i] b[i] in double; every product is exact. */
double calm_vec_dot(size_t n, const float *a, const float *b);

/* Returns the sum of a[i] b[i] of doubles, in eight lanes that are added pairwise. */
double calm_vec_ddot(size_t n, const double *a, const double *b);

/* gate[i] = silu(gate[i]) * up[i], silu(x) = x / (1 + exp(-x)). */
void calm_vec_silu_mul(size_t n, float *gate, const float *up);

/* gate[i] = (u + 1) g s(alpha g), g = min(gate[i], limit), u = up[i] within -limit .. limit,
 * s(x) = 1 / (1 + exp(-x)). */
void calm_vec_clamped_glu(size_t n, float limit, float alpha, float *gate, const float *up);

/* y[i] *= sigmoid(gate[i]), computed as y[i] / (1 + exp(-gate[i])). */
void calm_vec_sigmoid_mul(size_t n, const float *gate, float *y);

/* Activation functions in place, in this order: x / (1 + exp(-x)); x/2 (1 + erf(x / sqrt 2)); x/2 (1 +
 * tanh(sqrt(2/pi) (x + 0.044715 x^3))); x / (1 + exp(-1.702 x)); max(x, 0); max(x, 0)^2. */
void calm_vec_silu(size_t n, float *x);
void calm_vec_gelu(size_t n, float *x);
void calm_vec_gelu_tanh(size_t n, float *x);
void calm_vec_gelu_quick(size_t n, float *x);
void calm_vec_relu(size_t n, float *x);
void calm_vec_relu2(size_t n, float *x);

/* x[i] *= y[i]. */
void calm_vec_mul(size_t n, const float *y, float *x);

/* sum[i] += x[i] y[i]. */
void calm_vec_mul_add(size_t n, const float *x, const float *y, float *sum);

/* x[i] = cap tanh(scale x[i] / cap), cap > 0. */
void calm_vec_soft_cap(size_t n, float scale, float cap, float *x);

/* Computes the LayerNorm of a row: out [d] = (x - mean) / sqrt(var + eps) * weight + bias, var the biased variance;
 * `bias` NULL: none.  In place allowed. */
void calm_vec_layernorm(size_t d, const float *x, const float *weight, const float *bias, float eps, float *out);

/* Computes the RMSNorm of a row: out [d] = x / sqrt(mean(x^2) + eps) * weight.  In place allowed. */
void calm_vec_rmsnorm(size_t d, const float *x, const float *weight, float eps, float *out);
