/* Element-wise and row kernels.
 *
 * exp: x = n ln2 + r with |r| <= ln2 / 2, 2^n by the exponent field, e^r by the polynomial of Cephes' expf
 * (S. Moshier), whose error is below 2^-23 relative. */
#include "ptq/tensor/vector.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "ptq/base/simd.h"

#define LANES 16

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

CALM_VECTORIZE void calm_vec_add(size_t n, const float *x, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
}

CALM_VECTORIZE void calm_vec_axpy(size_t n, float a, const float *x, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] += a * x[i];
}

CALM_VECTORIZE void calm_vec_scale(size_t n, float a, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] *= a;
}

CALM_VECTORIZE float calm_vec_max(size_t n, const float *x)
{
    float lane[LANES];
    for (size_t j = 0; j < LANES; j++)
        lane[j] = x[0];
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t j = 0; j < LANES; j++)
            lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
    for (; i < n; i++)
        lane[0] = x[i] > lane[0] ? x[i] : lane[0];
    float max = lane[0];
    for (size_t j = 1; j < LANES; j++)
        max = lane[j] > max ? lane[j] : max;
    return max;
}

size_t calm_vec_argmax(size_t n, const float *x)
{
    const float max = calm_vec_max(n, x);
    size_t i = 0;
    while (i + 1 < n && x[i] != max)
        i++;
    return i;
}

CALM_VECTORIZE static double sum(size_t n, const float *x)
{
    double lane[LANES] = {0}, total = 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t j = 0; j < LANES; j++)
            lane[j] += (double)x[i + j];
    for (; i < n; i++)
        lane[i % LANES] += (double)x[i];
    for (size_t j = 0; j < LANES; j++)
        total += lane[j];
    return total;
}

CALM_VECTORIZE static void exp_shifted(size_t n, float shift, const float *x, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = exp_one(x[i] - shift);
}

/* Two loops: the compiler does not vectorise one that mixes the widths of float and double. */
double calm_vec_exp_sum(size_t n, float shift, const float *x, float *out)
{
    exp_shifted(n, shift, x, out);
    return sum(n, out);
}

CALM_VECTORIZE double calm_vec_dot(size_t n, const float *a, const float *b)
{
    double lane[LANES] = {0}, sum = 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t j = 0; j < LANES; j++)
            lane[j] += (double)a[i + j] * (double)b[i + j];
    for (; i < n; i++)
        lane[i % LANES] += (double)a[i] * (double)b[i];
    for (size_t j = 0; j < LANES; j++)
        sum += lane[j];
    return sum;
}

CALM_VECTORIZE double calm_vec_ddot(size_t n, const double *a, const double *b)
{
    double lane[8] = {0};
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (size_t j = 0; j < 8; j++)
            lane[j] += a[i + j] * b[i + j];
    for (size_t j = 0; i < n; i++, j++)
        lane[j] += a[i] * b[i];
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

CALM_VECTORIZE static float exp_sum(size_t n, float scale, float shift, float *x)
{
    float lane[LANES] = {0}, sum = 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t j = 0; j < LANES; j++) {
            x[i + j] = exp_one(scale * (x[i + j] - shift));
            lane[j] += x[i + j];
        }
    for (; i < n; i++) {
        x[i] = exp_one(scale * (x[i] - shift));
        lane[i % LANES] += x[i];
    }
    for (size_t j = 0; j < LANES; j++)
        sum += lane[j];
    return sum;
}

float calm_vec_softmax_numerators(size_t n, float scale, float *x)
{
    return exp_sum(n, scale, calm_vec_max(n, x), x);
}

CALM_VECTORIZE void calm_vec_silu_mul(size_t n, float *gate, const float *up)
{
    for (size_t i = 0; i < n; i++)
        gate[i] = gate[i] / (1.0f + exp_one(-gate[i])) * up[i];
}

CALM_VECTORIZE static void scale_rows(size_t d, const float *x, const float *weight, float factor, float *out)
{
    for (size_t i = 0; i < d; i++)
        out[i] = x[i] * factor * weight[i];
}

void calm_vec_rmsnorm(size_t d, const float *x, const float *weight, float eps, float *out)
{
    double mean = calm_vec_dot(d, x, x) / (double)d;
    scale_rows(d, x, weight, (float)(1.0 / sqrt(mean + (double)eps)), out);
}

CALM_VECTORIZE void calm_vec_silu(size_t n, float *x)
{
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] / (1.0f + exp_one(-x[i]));
}

void calm_vec_gelu(size_t n, float *x)
{
    for (size_t i = 0; i < n; i++)
        x[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678118654752f));
}

/* 1 + tanh(z) = 2 / (1 + exp(-2 z)). */
CALM_VECTORIZE void calm_vec_gelu_tanh(size_t n, float *x)
{
    for (size_t i = 0; i < n; i++) {
        const float z = 0.79788456080286536f * (x[i] + 0.044715f * x[i] * x[i] * x[i]);
        x[i] = x[i] / (1.0f + exp_one(-2.0f * z));
    }
}

CALM_VECTORIZE void calm_vec_relu(size_t n, float *x)
{
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] < 0 ? 0 : x[i];
}

CALM_VECTORIZE void calm_vec_mul(size_t n, const float *y, float *x)
{
    for (size_t i = 0; i < n; i++)
        x[i] *= y[i];
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
    return z2 < 0.390625f ? near : z < 0 ? -far : far;    /* 0.625^2 */
}

CALM_VECTORIZE void calm_vec_soft_cap(size_t n, float scale, float cap, float *x)
{
    const float inner = scale / cap;
    for (size_t i = 0; i < n; i++)
        x[i] = cap * tanh_one(inner * x[i]);
}

CALM_VECTORIZE static void normalize_row(size_t d, const float *x, const float *weight, const float *bias, float mean,
                                         float factor, float *out)
{
    for (size_t i = 0; i < d; i++)
        out[i] = (x[i] - mean) * factor * weight[i] + bias[i];
}

CALM_VECTORIZE static double squared_deviations(size_t n, const float *x, double mean)
{
    double lane[LANES] = {0}, total = 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t j = 0; j < LANES; j++)
            lane[j] += ((double)x[i + j] - mean) * ((double)x[i + j] - mean);
    for (; i < n; i++)
        lane[i % LANES] += ((double)x[i] - mean) * ((double)x[i] - mean);
    for (size_t j = 0; j < LANES; j++)
        total += lane[j];
    return total;
}

void calm_vec_layernorm(size_t d, const float *x, const float *weight, const float *bias, float eps, float *out)
{
    const double mean = sum(d, x) / (double)d, variance = squared_deviations(d, x, mean) / (double)d;
    normalize_row(d, x, weight, bias, (float)mean, (float)(1.0 / sqrt(variance + (double)eps)), out);
}
