/* Shared by the kernels of vector.c and their derivatives.  Only files of this folder include it. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Number of interleaved partial sums of a row. */
#define LANES 16

/* Slope of the GELU approximation x / (1 + exp(-1.702 x)). */
#define QUICK_SLOPE 1.702f

/* Returns exp(x): x = n ln2 + r with |r| <= ln2 / 2; 2^n by the exponent field, e^r by the polynomial of Cephes'
 * expf (S. Moshier), with a relative error below 2^-23. */
static inline float exp_one(float x)
{
    /* A NaN is clamped to the lower end here, so that it is never converted to an integer, and returned at the end. */
    float clamped = x > -87.3f ? (x < 88.0f ? x : 88.0f) : -87.3f;
    /* Adding and subtracting 1.5 * 2^23 rounds to the nearest integer, in vectors of any width alike. */
    float n = clamped * 1.44269504088896341f + 12582912.0f - 12582912.0f;
    float r = clamped - n * 0.693359375f - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    int32_t bits = ((int32_t)n + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    float value = p * power;
    return x < -87.3f ? 0.0f : x == x ? value : x;
}

/* Returns tanh(z) = 1 - 2 / (1 + exp(2 z)); near 0, where that cancels, the polynomial of Cephes' tanhf. */
static inline float tanh_one(float z)
{
    const float z2 = z * z, e = exp_one(z < 0 ? -2.0f * z : 2.0f * z), far = 1.0f - 2.0f / (1.0f + e);
    float p = -5.70498872745e-3f;
    p = p * z2 + 2.06390887954e-2f;
    p = p * z2 - 5.37397155531e-2f;
    p = p * z2 + 1.33314422036e-1f;
    p = p * z2 - 3.33332819422e-1f;
    const float near = p * z2 * z + z;
    return z2 < 0.390625f ? near : z < 0 ? -far : far; /* 0.625^2 */
}

/* Returns the sum of x[i] in double. */
double calm_vec_sum(size_t n, const float *x);

/* Return the factor of a row x [d] in RMSNorm; and for LayerNorm the mean to subtract and the factor. */
float calm_vec_rmsnorm_factor(size_t d, const float *x, float eps);
void calm_vec_layernorm_factors(size_t d, const float *x, float eps, float *mean, float *factor);
