/* What the kernels of vector.c and their derivatives share.  Only files of this folder include it. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Interleaved partial sums of a row. */
#define LANES 16

/* Of GELU's approximation x / (1 + exp(-1.702 x)). */
#define QUICK_SLOPE 1.702f

/* exp: x = n ln2 + r with |r| <= ln2 / 2, 2^n by the exponent field, e^r by the polynomial of Cephes' expf
 * (S. Moshier), whose error is below 2^-23 relative. */
static inline float exp_one(float x)
{
    /* A NaN takes the lower end here, so that it never becomes an integer, and comes back at the end. */
    float clamped = x > -87.3f ? (x < 88.0f ? x : 88.0f) : -87.3f;
    /* Adding and taking off 1.5 * 2^23 rounds to the nearest whole number, on every vector width alike. */
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

/* 1 - 2 / (1 + exp(2 z)), and near 0, where that cancels, the polynomial of Cephes' tanhf. */
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

/* sum of x[i] in double. */
double calm_vec_sum(size_t n, const float *x);

/* What a row x [d] is multiplied by in RMSNorm; and in LayerNorm, after its mean is taken off. */
float calm_vec_rmsnorm_factor(size_t d, const float *x, float eps);
void calm_vec_layernorm_factors(size_t d, const float *x, float eps, float *mean, float *factor);
