/* Element-wise and row kernels. */
#include "ptq/tensor/vector.h"

#include <math.h>

#include "ptq/base/simd.h"
#include "ptq/tensor/vector_impl.h"

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

CALM_VECTORIZE double calm_vec_sum(size_t n, const float *x)
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

CALM_VECTORIZE void calm_vec_silu_mul(size_t n, float *gate, const float *up)
{
    for (size_t i = 0; i < n; i++)
        gate[i] = gate[i] / (1.0f + exp_one(-gate[i])) * up[i];
}

CALM_VECTORIZE void calm_vec_clamped_glu(size_t n, float limit, float alpha, float *gate, const float *up)
{
    for (size_t i = 0; i < n; i++) {
        /* Comparisons with a NaN are false, so a NaN remains. */
        const float g = gate[i] > limit ? limit : gate[i];
        const float u = up[i] > limit ? limit : up[i] < -limit ? -limit : up[i];
        gate[i] = (u + 1.0f) * (g / (1.0f + exp_one(-alpha * g)));
    }
}

CALM_VECTORIZE void calm_vec_sigmoid_mul(size_t n, const float *gate, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = y[i] / (1.0f + exp_one(-gate[i]));
}

CALM_VECTORIZE static void scale_rows(size_t d, const float *x, const float *weight, float factor, float *out)
{
    for (size_t i = 0; i < d; i++)
        out[i] = x[i] * factor * weight[i];
}

float calm_vec_rmsnorm_factor(size_t d, const float *x, float eps)
{
    double mean = calm_vec_dot(d, x, x) / (double)d;
    return (float)(1.0 / sqrt(mean + (double)eps));
}

void calm_vec_rmsnorm(size_t d, const float *x, const float *weight, float eps, float *out)
{
    scale_rows(d, x, weight, calm_vec_rmsnorm_factor(d, x, eps), out);
}

CALM_VECTORIZE void calm_vec_silu(size_t n, float *x)
{
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] / (1.0f + exp_one(-x[i]));
}

/* Uses 1 + tanh(z) = 2 / (1 + exp(-2 z)). */
CALM_VECTORIZE void calm_vec_gelu_tanh(size_t n, float *x)
{
    for (size_t i = 0; i < n; i++) {
        const float z = 0.79788456080286536f * (x[i] + 0.044715f * x[i] * x[i] * x[i]);
        x[i] = x[i] / (1.0f + exp_one(-2.0f * z));
    }
}

CALM_VECTORIZE void calm_vec_gelu_quick(size_t n, float *x)
{
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] / (1.0f + exp_one(-QUICK_SLOPE * x[i]));
}

CALM_VECTORIZE void calm_vec_relu(size_t n, float *x)
{
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] < 0 ? 0 : x[i];
}

CALM_VECTORIZE void calm_vec_relu2(size_t n, float *x)
{
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] < 0 ? 0 : x[i] * x[i];
}

CALM_VECTORIZE void calm_vec_mul(size_t n, const float *y, float *x)
{
    for (size_t i = 0; i < n; i++)
        x[i] *= y[i];
}

CALM_VECTORIZE void calm_vec_mul_add(size_t n, const float *x, const float *y, float *sum)
{
    for (size_t i = 0; i < n; i++)
        sum[i] += x[i] * y[i];
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

CALM_VECTORIZE static void normalize_unbiased(size_t d, const float *x, const float *weight, float mean, float factor,
                                              float *out)
{
    for (size_t i = 0; i < d; i++)
        out[i] = (x[i] - mean) * factor * weight[i];
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

void calm_vec_layernorm_factors(size_t d, const float *x, float eps, float *mean, float *factor)
{
    const double exact = calm_vec_sum(d, x) / (double)d, variance = squared_deviations(d, x, exact) / (double)d;
    *mean = (float)exact;
    *factor = (float)(1.0 / sqrt(variance + (double)eps));
}

void calm_vec_layernorm(size_t d, const float *x, const float *weight, const float *bias, float eps, float *out)
{
    float mean, factor;
    calm_vec_layernorm_factors(d, x, eps, &mean, &factor);
    if (bias)
        normalize_row(d, x, weight, bias, mean, factor, out);
    else
        normalize_unbiased(d, x, weight, mean, factor, out);
}
