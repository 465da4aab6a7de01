/* Scales of super-blocks: a search over all d for which the largest scale is an integer multiple of d. */
#include "ptq/quant/super_block.h"

#include <math.h>

#include "ptq/base/simd.h"
#include "ptq/tensor/dtype.h"

#define LEAST 0x1p-24        /* smallest positive float16 */
#define MOST 65280.0
#define LANES 32             /* a multiple of the widest vector */
#define ROUND_F64 0x1.8p52

/* Integers that a code of a scale holds; least 0: unsigned. */
typedef struct range {
    int least, most;
} range;

static range range_of(const calm_scheme *scheme)
{
    switch (calm_scheme_family(scheme)->scale) {
    case CALM_SCALE_U4:
        return (range){0, 15};
    case CALM_SCALE_U6:
        return (range){0, 63};
    case CALM_SCALE_S6:
        return (range){-32, 31};
    default:
        return (range){-128, 127};
    }
}

bool calm_scheme_is_super_block(const calm_scheme *scheme)
{
    const calm_scale_code code = calm_scheme_family(scheme)->scale;
    return code == CALM_SCALE_U4 || code == CALM_SCALE_U6 || code == CALM_SCALE_S6 || code == CALM_SCALE_S8;
}

/* Limits a scale to the range that a super-block stores; with `up`, scales have no sign. */
static inline float storable(bool up, double scale)
{
    const double size = fabs(scale);
    if (up && scale < LEAST)
        return (float)LEAST;
    if (size < LEAST)
        return copysignf((float)LEAST, (float)scale);
    return size > MOST ? copysignf(INFINITY, (float)scale) : (float)scale;
}

float calm_super_scale(const calm_scheme *scheme, double scale)
{
    return storable(range_of(scheme).least == 0, scale);
}

CALM_VECTORIZE
static void store_all(bool up, size_t n, const double *scale, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = storable(up, scale[i]);
}

void calm_super_scales(const calm_scheme *scheme, size_t n, const double *scale, float *out)
{
    store_all(range_of(scheme).least == 0, n, scale, out);
}

float calm_super_minimum(double minimum)
{
    return !(minimum < 0) ? (isnan(minimum) ? NAN : 0) : minimum >= -MOST ? (float)minimum : -INFINITY;
}

/* Returns the multiple of d nearest to x; with `nonzero`, a multiple other than 0. */
static int nearest(range r, float d, float x, bool nonzero)
{
    double q = (double)x / (double)d;
    q = q < r.least ? r.least : q > r.most ? r.most : q;
    q = (q + ROUND_F64) - ROUND_F64;
    if (nonzero && q == 0)
        q = r.least < 0 && (x < 0) != (d < 0) ? -1 : 1;
    return (int)q;
}

/* Returns the value of largest magnitude. */
static float largest(const float *x, size_t n)
{
    float most = 0;
    for (size_t i = 0; i < n; i++)
        most = fabsf(x[i]) > fabsf(most) ? x[i] : most;
    return most;
}

/* Candidate steps, each with its sum of squared errors in the order of the values; the error is infinite for an
 * unused lane. */
typedef struct steps {
    double d[LANES], error[LANES];
    float step[LANES];
    size_t n;
} steps;

/* Adds the errors of n values x for all lanes; stops when all exceed `most`, with errors that only mean above it. */
CALM_VECTORIZE
static void add_errors(steps *s, double lo, double hi, const float *x, size_t n, bool nonzero, double most)
{
    for (size_t i = 0; i < n; i++) {
        const double xi = x[i];
        double least = INFINITY;
        for (size_t l = 0; l < LANES; l++) {
            double q = xi / s->d[l];
            q = q < lo ? lo : q;
            q = q > hi ? hi : q;
            q = (q + ROUND_F64) - ROUND_F64;
            const double one = lo < 0 && (xi < 0) != (s->d[l] < 0) ? -1 : 1;
            q = nonzero && q == 0 ? one : q;
            const double e = xi - s->d[l] * q;
            s->error[l] += e * e;
        }
        for (size_t l = 0; l < LANES; l++)
            least = s->error[l] < least ? s->error[l] : least;
        if (least > most)
            break;
    }
}

/* Sets the steps for which `most` is the multiple k, k - 1, ..., of either sign; returns the first k that remains. */
static int fill_steps(steps *s, range r, float most, int k)
{
    s->n = 0;
    for (; k >= 1 && s->n + 2 <= LANES; k--)
        for (int sign = -1; sign <= 1; sign += 2) {
            const int number = sign * k;
            if (number >= r.least && number <= r.most)
                s->step[s->n++] = most / (float)number;
        }
    calm_dtype_round_all(CALM_F16, s->step, s->n);
    for (size_t l = 0; l < LANES; l++) {
        const bool is_step = l < s->n && s->step[l] != 0 && isfinite(s->step[l]);
        s->d[l] = is_step ? s->step[l] : 1;
        s->error[l] = is_step ? 0 : INFINITY;
    }
    return k;
}

/* Returns the float16 step for which x [n] are nearest to its multiples within r, or 0 if all are 0.  The search
 * runs from fine to coarse, so of equal steps the finest is chosen. */
static float best_step(range r, const float *x, size_t n, bool nonzero)
{
    const float most = largest(x, n);
    float best = 0;
    double least = INFINITY;
    steps s;
    for (int k = r.most > -r.least ? r.most : -r.least; k >= 1 && most != 0 && least > 0;) {
        k = fill_steps(&s, r, most, k);
        add_errors(&s, r.least, r.most, x, n, nonzero, least);
        for (size_t l = 0; l < s.n; l++)
            if (s.error[l] < least) {
                least = s.error[l];
                best = s.step[l];
            }
    }
    return best;
}

static bool all_finite(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

void calm_super_round(const calm_scheme *scheme, size_t n, float *scales, float *mins)
{
    const range r = range_of(scheme);
    if (!all_finite(scales, n) || (mins && !all_finite(mins, n)))
        return;    /* the caller finds the value and reports it   */
    const range up = {0, r.most};
    float d;
    for (size_t i = 0; i < n; i++)
        scales[i] = calm_super_scale(scheme, (double)scales[i]);
    d = best_step(r, scales, n, true);
    for (size_t i = 0; i < n; i++)
        scales[i] = d != 0 ? d * (float)nearest(r, d, scales[i], true) : INFINITY;
    if (!mins)
        return;
    for (size_t i = 0; i < n; i++)
        mins[i] = -calm_super_minimum((double)mins[i]);
    d = best_step(up, mins, n, false);
    for (size_t i = 0; i < n; i++)    /* 0, not -0, as for absent minima       */
        mins[i] = d != 0 && nearest(up, d, mins[i], false) ? -(d * (float)nearest(up, d, mins[i], false)) : 0;
}

static bool split(range r, size_t n, const float *x, float sign, bool nonzero, uint16_t *step, int *numbers)
{
    float values[CALM_SUPER_MAX] = {0};
    for (size_t i = 0; i < n; i++)
        values[i] = sign * x[i];
    const float d = best_step(r, values, n, nonzero);
    *step = calm_f32_to_f16(d);
    for (size_t i = 0; i < n; i++) {
        numbers[i] = d != 0 ? nearest(r, d, values[i], nonzero) : 0;
        if (d * (float)numbers[i] != values[i])
            return false;
    }
    return true;
}

bool calm_super_split(const calm_scheme *scheme, size_t n, const float *scales, const float *mins,
                      calm_super_block *out)
{
    const range r = range_of(scheme);
    *out = (calm_super_block){0};
    return n <= CALM_SUPER_MAX && split(r, n, scales, 1, true, &out->d, out->scales)
           && (!mins || split((range){0, r.most}, n, mins, -1, false, &out->dmin, out->minima));
}
