/* A slow computation in double, with bounds on the error that the same computation has in float32.
 *
 * Errors are of first order: each function adds those of its operands, by their derivatives, and 2^-24 of a result for
 * each of its own roundings.  Sums may have any order, so of n terms each is rounded n times. */
#ifndef CALM_TESTS_BOUNDED_H
#define CALM_TESTS_BOUNDED_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "ptq/model/model.h"

#define UNIT 0x1p-24

typedef struct bounded {
    double value, error;
} bounded;

static inline void bounded_exactly(const float *x, size_t n, bounded *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (bounded){(double)x[i], 0};
}

/* Returns w . x plus `start`. */
static inline bounded bounded_dot(const float *w, const bounded *x, size_t n, double start)
{
    bounded sum = {start, 0};
    double size = fabs(start);
    for (size_t i = 0; i < n; i++) {
        sum.value += (double)w[i] * x[i].value;
        sum.error += fabs((double)w[i]) * x[i].error;
        size += fabs((double)w[i] * x[i].value);
    }
    sum.error += (double)(n + 1) * UNIT * size;
    return sum;
}

/* Computes y [out] = W x + b. */
static inline void bounded_project(const calm_weight *weight, const bounded *x, bounded *y)
{
    for (size_t o = 0; o < weight->out; o++)
        y[o] = bounded_dot(weight->w + o * weight->in, x, weight->in, weight->bias ? (double)weight->bias[o] : 0);
}

static inline bounded bounded_times(bounded a, bounded b)
{
    const double value = a.value * b.value, error = (fabs(a.value) + a.error) * b.error + a.error * fabs(b.value);
    return (bounded){value, error + UNIT * (fabs(value) + error)};
}

/* Returns silu(g) u: the slope of silu is below 1.1, and its exponential is good to a few units. */
static inline bounded bounded_gated(bounded g, bounded u)
{
    const double silu = g.value / (1 + exp(-g.value));
    return (bounded){silu * u.value, 1.1 * g.error * fabs(u.value) + (fabs(silu) + 1.1 * g.error) * u.error +
                                         8 * UNIT * fabs(silu * u.value)};
}

/* Returns the sigmoid, whose slope is at most 1/4; it is rounded a few times. */
static inline bounded bounded_sigmoid(bounded x)
{
    return (bounded){1 / (1 + exp(-x.value)), x.error / 4 + 8 * UNIT};
}

/* Returns factor a . b. */
static inline bounded bounded_product(const bounded *a, const bounded *b, size_t n, double factor)
{
    bounded sum = {0, 0};
    for (size_t i = 0; i < n; i++) {
        sum.value += factor * a[i].value * b[i].value;
        sum.error += fabs(factor) * (fabs(a[i].value) * b[i].error + a[i].error * (fabs(b[i].value) + b[i].error) +
                                     (double)(n + 1) * UNIT * fabs(a[i].value * b[i].value));
    }
    return sum;
}

/* RMSNorm in place, w NULL: of ones.  Its factor is computed in double, and rounded; two products follow. */
static inline void bounded_norm(size_t n, const float *w, double eps, bounded *x)
{
    double sumsq = 0, error = 0;
    for (size_t i = 0; i < n; i++) {
        sumsq += x[i].value * x[i].value;
        error += fabs(x[i].value) * x[i].error;
    }
    const double mean = sumsq / (double)n + eps, relative = error / (double)n / mean + 3 * UNIT;
    for (size_t i = 0; i < n; i++) {
        const double factor = (w ? (double)w[i] : 1) / sqrt(mean);
        x[i] = (bounded){factor * x[i].value, fabs(factor) * (x[i].error + relative * fabs(x[i].value))};
    }
}

/* Rotates pair c of r / 2.  The frequency theta^-(2 c / r) is off by ln(theta) units of its exponent and by those of
 * a power and a quotient, and the angle is rounded; all are exact for c = 0.  Cosines and sines are rounded as well,
 * then products and their sum. */
static inline void bounded_turn(double theta, size_t c, size_t r, size_t position, bounded *a, bounded *b)
{
    const double exponent = 2 * (double)c / (double)r, angle = (double)position * pow(theta, -exponent);
    const double off = (c ? angle * (log(theta) * exponent + 3) + 1 : 1) * UNIT;
    const double cosine = cos(angle), sine = sin(angle);
    const bounded u = *a, v = *b;
    const double error = (fabs(u.value) + fabs(v.value)) * off;
    const double x = fabs(u.value * cosine) + fabs(v.value * sine), y = fabs(v.value * cosine) + fabs(u.value * sine);
    *a = (bounded){u.value * cosine - v.value * sine,
                   u.error * fabs(cosine) + v.error * fabs(sine) + error + 2 * UNIT * x};
    *b = (bounded){v.value * cosine + u.value * sine,
                   v.error * fabs(cosine) + u.error * fabs(sine) + error + 2 * UNIT * y};
}

/* Computes out [d] = sum of exp(s_j) v_j / (sum of exp(s_j) + exp(sink)) over n keys, those of score -INFINITY left
 * out; sink NULL: none.  v_j begins at v + j * stride; s becomes the shares.
 *
 * An exponential has 4 units, and two for each unit of its argument s_j - max; it counts in both sums, so its effect
 * on the result is that of its distance from it.  Both sums have a rounding for each term, the quotient two. */
static inline void bounded_context(bounded *s, size_t n, const double *sink, const bounded *v, size_t stride, size_t d,
                                   bounded *out)
{
    bounded top = {-INFINITY, 0};
    double sum = 0, seen = 1;
    for (size_t j = 0; j < n; j++)
        top = s[j].value > top.value ? s[j] : top;
    for (size_t j = 0; j < n; j++) {
        seen += isfinite(s[j].value);
        s[j].error += isfinite(s[j].value) ? (2 * (top.value - s[j].value) + 4) * UNIT : 0;
        s[j].value = exp(s[j].value - top.value);
        sum += s[j].value;
    }
    /* The sink is subtracted from the rounded largest score. */
    const double of_sink = sink ? exp(*sink - top.value) : 0;
    const double off = sink ? top.error + (fabs(top.value) + fabs(*sink - top.value) + 4) * UNIT : 0;
    sum += of_sink;
    for (size_t j = 0; j < n; j++)
        s[j].value /= sum;
    for (size_t c = 0; c < d; c++) {
        double value = 0, size = 0, error = 0;
        for (size_t j = 0; j < n; j++) {
            value += s[j].value * v[j * stride + c].value;
            size += s[j].value * fabs(v[j * stride + c].value);
        }
        for (size_t j = 0; j < n; j++)
            error += s[j].value * (v[j * stride + c].error + s[j].error * fabs(v[j * stride + c].value - value));
        error += of_sink / sum * off * fabs(value);
        out[c] = (bounded){value, error + seen * UNIT * (size + fabs(value)) + 2 * UNIT * fabs(value)};
    }
}

#endif
