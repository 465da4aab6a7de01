/* Adam over the logarithms of scales and norms, and over biases. */
#include "algorithms/adam.h"

#include <math.h>
#include <string.h>

#include "ptq/quant/grid.h"
#include "ptq/quant/super_block.h"
#include "ptq/tensor/vector.h"

/* Decay rates of the moments, and the constant that keeps the denominator above 0. */
#define BETA1 0.9
#define BETA2 0.95
#define EPS 1e-12

calm_status calm_adam_new(calm_ctx *ctx, calm_arena *arena, size_t n, calm_adam *out)
{
    CALM_TRY(CALM_NEW(ctx, arena, out->x, n));
    CALM_TRY(CALM_NEW(ctx, arena, out->m, n));
    return CALM_NEW(ctx, arena, out->v, n);
}

void calm_adam_reset(calm_adam *adam, size_t n)
{
    memset(adam->x, 0, n * sizeof *adam->x);
    memset(adam->m, 0, n * sizeof *adam->m);
    memset(adam->v, 0, n * sizeof *adam->v);
}

size_t calm_adam_bytes(size_t n)
{
    return 3 * CALM_BYTES(double, n);
}

void calm_adam_begin_step(calm_adam *adam, double rate, size_t t)
{
    adam->rate = rate;
    adam->correct1 = 1 - pow(BETA1, (double)t);
    adam->correct2 = 1 - pow(BETA2, (double)t);
}

/* Does one step of entry i with gradient g; returns x. */
static double step(const calm_adam *of, size_t i, double g)
{
    of->m[i] = BETA1 * of->m[i] + (1 - BETA1) * g;
    of->v[i] = BETA2 * of->v[i] + (1 - BETA2) * g * g;
    of->x[i] -= of->rate * (of->m[i] / of->correct1) / (sqrt(of->v[i] / of->correct2) + EPS);
    return of->x[i];
}

size_t calm_adam_together(const calm_learn_linear *linear, size_t g)
{
    return calm_size_min(calm_scheme_family(&linear->scheme)->super, linear->n_groups - g);
}

void calm_adam_scales(const calm_adam *adam, const calm_learn_linear *linear, size_t row, size_t g, size_t n,
                      const float *start, float *scales)
{
    const size_t cell = row * linear->n_groups + g;
    float mins[CALM_SUPER_MAX];
    for (size_t i = 0; i < n; i++)
        scales[i] = calm_scale_round(&linear->scheme, linear->global, (double)start[i] * exp(adam->x[cell + i]));
    if (!calm_scheme_is_super_block(&linear->scheme))
        return;
    if (linear->mins)
        memcpy(mins, linear->mins + cell, n * sizeof *mins);
    calm_scales_round(&linear->scheme, linear->global, n, scales, linear->mins ? mins : NULL);
}

/* Returns dL/dx of a group's factor: the sum of dL/dw^ w^ (since d w^ / d x = w^), over all rows that share its scale.
 * */
static double scale_gradient(const calm_learn_linear *linear, size_t row, size_t g)
{
    const size_t at = row * linear->in + g * linear->group;
    const size_t n = calm_size_min(linear->group, linear->in - g * linear->group);
    const size_t rows = calm_size_min(calm_scheme_rows(&linear->scheme), linear->out - row);
    double gradient = 0;
    for (size_t r = 0; r < rows; r++)
        gradient += calm_vec_dot(n, linear->grad + at + r * linear->in, linear->effective + at + r * linear->in);
    /* The scale does not multiply the minimum in w^. */
    for (size_t j = at; linear->mins && j < at + n; j++)
        gradient -= (double)linear->grad[j] * (double)linear->mins[row * linear->n_groups + g];
    return gradient;
}

calm_status calm_adam_step_scales(calm_ctx *ctx, const calm_adam *adam, const calm_learn_linear *linear, size_t row,
                                  size_t g, size_t n, const float *start, float *scales)
{
    for (size_t i = 0; i < n; i++)
        step(adam, row * linear->n_groups + g + i, scale_gradient(linear, row, g + i));
    calm_adam_scales(adam, linear, row, g, n, start, scales);
    for (size_t i = 0; i < n; i++)
        if (!isfinite(scales[i]))
            return calm_fail(ctx, CALM_ENUMERIC, "%s: the learned scale of row %zu, group %zu is %g", linear->name, row,
                             g + i, (double)scales[i]);
    return CALM_OK;
}

calm_status calm_adam_step_vector(calm_ctx *ctx, const calm_adam *adam, const float *start, calm_learn_vector *vector)
{
    for (size_t i = 0; i < vector->n; i++) {
        /* The gradient of a factor uses the value that the loss read: rounded, with its offset. */
        const double unit = (double)(vector->unit > 0 ? vector->unit : vector->values[i]);
        const double x = step(adam, i, (double)vector->grad[i] * unit);
        const float value = (float)(vector->unit > 0 ? (double)start[i] + unit * x : (double)start[i] * exp(x));
        vector->values[i] = calm_dtype_round(vector->dtype, value - vector->offset) + vector->offset;
        if (!isfinite(vector->values[i]))
            return calm_fail(ctx, CALM_ENUMERIC, "%s: the learned value %zu is %g", vector->name, i,
                             (double)vector->values[i]);
    }
    return CALM_OK;
}
