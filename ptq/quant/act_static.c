/* Static scales of activations: a search over the range, then least-squares iterations. */
#include "ptq/quant/act_static.h"

#include <math.h>

#include "ptq/quant/act_levels.h"
#include "ptq/quant/grid.h"

#define VALUES_MOST ((size_t)1 << 18)    /* maximum number of sampled values: the error of one scale needs no more */
#define STEPS 33                         /* of the search, four per factor of two  */
#define ROUNDS 8
#define E4M3_MOST 448.0

typedef struct fit {
    double loss, along, square;    /* sum w (y - s q)^2, sum w y q, sum w q^2 */
} fit;

static float value(const calm_act_rows *rows, size_t t, size_t j)
{
    const float x = rows->x[t * rows->d + j];
    return rows->in_scale ? x / rows->in_scale[j] : x;
}

/* Sums the rows in their order, each on its own first. */
static fit measure(const calm_scheme *scheme, const calm_act_rows *rows, size_t step, float scale)
{
    const double lo = -ldexp(1, scheme->act_bits - 1), hi = -lo - 1;
    fit all = {0, 0, 0};
    for (size_t t = 0; t < rows->n; t += step) {
        fit row = {0, 0, 0};
        for (size_t j = 0; j < rows->d; j++) {
            const float y = value(rows, t, j);
            const double q = fmin(fmax(rint((double)(y / scale)), lo), hi), e = (double)y - (double)scale * q;
            row.loss += rows->weights[j] * e * e;
            row.along += rows->weights[j] * (double)y * q;
            row.square += rows->weights[j] * q * q;
        }
        all.loss += row.loss;
        all.along += row.along;
        all.square += row.square;
    }
    return all;
}

/* Returns the scale that spans the largest activation: as compressed-tensors spans a token, or up to the largest
 * float. */
static double spanning(const calm_scheme *scheme, const calm_act_rows *rows)
{
    const bool floats = calm_act_rule_is_float(scheme->act_rule);
    double most = 0;
    for (size_t j = 0; j < rows->d; j++)
        most = fmax(most, (double)(rows->in_scale ? rows->absmax[j] / rows->in_scale[j] : rows->absmax[j]));
    return most <= 0 ? 1 : most / (floats ? E4M3_MOST : ldexp(1, scheme->act_bits - 1) - 0.5);
}

float calm_act_static_scale(const calm_scheme *scheme, const calm_act_rows *rows)
{
    const size_t values = rows->n * rows->d, step = values > VALUES_MOST ? values / VALUES_MOST : 1;
    const double widest = spanning(scheme, rows);
    /* Scales of activations have 16 bits, whatever the scheme's weights have. */
    const calm_scheme wide = {.scale_dtype = scheme->scale_dtype};
    float best = calm_scale_round(&wide, 0, widest);
    if (!isfinite(best) || rows->n == 0 || calm_act_rule_is_float(scheme->act_rule))
        return best;
    fit of_best = measure(scheme, rows, step, best);
    for (int k = 1; k < STEPS; k++) {
        const float scale = calm_scale_round(&wide, 0, widest * exp2(-0.25 * k));
        const fit found = measure(scheme, rows, step, scale);
        if (found.loss < of_best.loss) {
            of_best = found;
            best = scale;
        }
    }
    for (int round = 0; round < ROUNDS && of_best.square > 0; round++) {
        const float scale = calm_scale_round(&wide, 0, of_best.along / of_best.square);
        const fit found = measure(scheme, rows, step, scale);
        if (!(found.loss < of_best.loss))
            break;
        of_best = found;
        best = scale;
    }
    return best;
}
