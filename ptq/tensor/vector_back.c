/* Derivatives of the element-wise and row kernels. */
#include "ptq/tensor/vector_back.h"

#include <math.h>

#include "ptq/base/simd.h"
#include "ptq/tensor/vector.h"
#include "ptq/tensor/vector_impl.h"

/* silu(x) = x s with s = 1 / (1 + exp(-x)), s' = s (1 - s). */
CALM_VECTORIZE void calm_vec_silu_back(size_t n, const float *x, float *dy)
{
    for (size_t i = 0; i < n; i++) {
        const float s = 1.0f / (1.0f + exp_one(-x[i]));
        dy[i] *= s + x[i] * s * (1.0f - s);
    }
}

/* f(g) = g s with s = 1 / (1 + exp(-alpha g)), f' = s + alpha g s (1 - s). */
CALM_VECTORIZE void calm_vec_clamped_glu_back(size_t n, float limit, float alpha, const float *gate, const float *up,
                                              float *dy, float *dup)
{
    for (size_t i = 0; i < n; i++) {
        const float g = gate[i] > limit ? limit : gate[i];
        const float u = up[i] > limit ? limit : up[i] < -limit ? -limit : up[i];
        const float s = 1.0f / (1.0f + exp_one(-alpha * g));
        dup[i] = u == up[i] ? dy[i] * g * s : 0;
        dy[i] = g == gate[i] ? dy[i] * (u + 1.0f) * (s + alpha * g * s * (1.0f - s)) : 0;
    }
}

/* x P(x) with the normal distribution P, whose derivative is its density. */
void calm_vec_gelu_back(size_t n, const float *x, float *dy)
{
    for (size_t i = 0; i < n; i++) {
        const float p = 0.5f * (1.0f + erff(x[i] * 0.70710678118654752f));
        dy[i] *= p + x[i] * 0.39894228040143268f * expf(-0.5f * x[i] * x[i]);
    }
}

/* x s with s = 1 / (1 + exp(-2 z)), s' = 2 s (1 - s) z'.  Beyond 12, s is 0 or 1, and the cube would overflow. */
CALM_VECTORIZE void calm_vec_gelu_tanh_back(size_t n, const float *x, float *dy)
{
    for (size_t i = 0; i < n; i++) {
        const float below = x[i] > 12 ? 12 : x[i], at = below < -12 ? -12 : below, square = at * at;
        const float z = 0.79788456080286536f * (at + 0.044715f * square * at);
        const float slope = 0.79788456080286536f * (1.0f + 3 * 0.044715f * square),
                    s = 1.0f / (1.0f + exp_one(-2.0f * z));
        dy[i] *= s + 2.0f * at * s * (1.0f - s) * slope;
    }
}

/* As in silu, with the slope QUICK_SLOPE of the sigmoid's argument. */
CALM_VECTORIZE void calm_vec_gelu_quick_back(size_t n, const float *x, float *dy)
{
    for (size_t i = 0; i < n; i++) {
        const float s = 1.0f / (1.0f + exp_one(-QUICK_SLOPE * x[i]));
        dy[i] *= s + QUICK_SLOPE * x[i] * s * (1.0f - s);
    }
}

CALM_VECTORIZE void calm_vec_relu_back(size_t n, const float *x, float *dy)
{
    for (size_t i = 0; i < n; i++)
        dy[i] = x[i] > 0 ? dy[i] : 0;
}

CALM_VECTORIZE void calm_vec_relu2_back(size_t n, const float *x, float *dy)
{
    for (size_t i = 0; i < n; i++)
        dy[i] = x[i] > 0 ? 2.0f * x[i] * dy[i] : 0;
}

CALM_VECTORIZE void calm_vec_sigmoid_mul_back(size_t n, const float *gate, const float *x, float *dy, float *dgate)
{
    for (size_t i = 0; i < n; i++) {
        const float s = 1.0f / (1.0f + exp_one(-gate[i]));
        dgate[i] = dy[i] * x[i] * s * (1.0f - s);
        dy[i] *= s;
    }
}

CALM_VECTORIZE void calm_vec_soft_cap_back(size_t n, float scale, float cap, const float *x, float *dy)
{
    const float inner = scale / cap;
    for (size_t i = 0; i < n; i++) {
        const float t = tanh_one(inner * x[i]);
        dy[i] *= scale * (1.0f - t) * (1.0f + t);
    }
}

CALM_VECTORIZE void calm_vec_soft_capped_back(size_t n, float cap, const float *y, float *dy)
{
    for (size_t i = 0; i < n; i++) {
        const float t = y[i] / cap;
        dy[i] *= (1.0f - t) * (1.0f + t);
    }
}

CALM_VECTORIZE static void subtract_and_multiply(size_t n, const float *p, float mean, float *dy)
{
    for (size_t i = 0; i < n; i++)
        dy[i] = p[i] * (dy[i] - mean);
}

void calm_vec_softmax_back(size_t n, const float *p, float *dy)
{
    subtract_and_multiply(n, p, (float)calm_vec_dot(n, p, dy), dy);
}

/* Returns the sum of a[i] b[i] (c[i] - shift), in double. */
CALM_VECTORIZE static double dot_of_three(size_t n, const float *a, const float *b, const float *c, float shift)
{
    double lane[LANES] = {0}, total = 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t j = 0; j < LANES; j++)
            lane[j] += (double)a[i + j] * (double)b[i + j] * ((double)c[i + j] - (double)shift);
    for (; i < n; i++)
        lane[i % LANES] += (double)a[i] * (double)b[i] * ((double)c[i] - (double)shift);
    for (size_t j = 0; j < LANES; j++)
        total += lane[j];
    return total;
}

/* Computes sum[i] += dy[i] (x[i] - shift) factor. */
CALM_VECTORIZE static void add_products(size_t d, const float *x, float shift, float factor, const float *dy,
                                        float *sum)
{
    for (size_t i = 0; i < d; i++)
        sum[i] += dy[i] * ((x[i] - shift) * factor);
}

/* Computes dx[i] = dy[i] weight[i] factor - (x[i] - shift) along - constant. */
CALM_VECTORIZE static void project_row(size_t d, const float *x, float shift, const float *weight, float factor,
                                       float along, float constant, const float *dy, float *dx)
{
    for (size_t i = 0; i < d; i++)
        dx[i] = dy[i] * weight[i] * factor - (x[i] - shift) * along - constant;
}

/* y = x f w, f = (mean(x^2) + eps)^-1/2, df/dx_i = -f^3 x_i / d. */
void calm_vec_rmsnorm_back(size_t d, const float *x, const float *weight, float eps, const float *dy, float *dweight,
                           float *dx)
{
    const float factor = calm_vec_rmsnorm_factor(d, x, eps);
    if (dweight)
        add_products(d, x, 0, factor, dy, dweight);
    if (!dx)
        return;
    const double f = (double)factor, along = f * f * f * dot_of_three(d, dy, weight, x, 0) / (double)d;
    project_row(d, x, 0, weight, factor, (float)along, 0, dy, dx);
}

/* y = (x - m) f w + b: as RMSNorm with x - m for x, minus the mean of the gradient, since m depends on x. */
void calm_vec_layernorm_back(size_t d, const float *x, const float *weight, float eps, const float *dy, float *dweight,
                             float *dbias, float *dx)
{
    float mean, factor;
    calm_vec_layernorm_factors(d, x, eps, &mean, &factor);
    if (dweight)
        add_products(d, x, mean, factor, dy, dweight);
    if (dbias)
        calm_vec_add(d, dy, dbias);
    if (!dx)
        return;
    const double f = (double)factor, along = f * f * f * dot_of_three(d, dy, weight, x, mean) / (double)d;
    project_row(d, x, mean, weight, factor, (float)along, (float)(f * calm_vec_dot(d, dy, weight) / (double)d), dy, dx);
}

void calm_vec_lengths(size_t n, size_t width, size_t stride, const float *x, bool add, float *lengths)
{
    for (size_t t = 0; t < n; t++) {
        const float *row = x + t * stride;
        /* In double, as the square of a float32 may overflow float32. */
        const double before = add ? (double)lengths[t] : 0;
        lengths[t] = (float)sqrt(before * before + calm_vec_dot(width, row, row));
    }
}
