/* Grids: the storable values of one group of weights, and of one token of activations.
 *
 *   w^ = scale * level + min,  level = code - zero, or that of the scheme's table;  code in [code_min, code_max]
 * A scale is rounded to what the scheme stores before any code is computed, so what a checkpoint reader
 * multiplies with is exactly what the codes were chosen for (docs/method.md section 1).
 *
 * Some schemes store scales as multiples of one number: `global` is that of the whole job, the same in all calls; 0
 * where a scheme has none (calm_scale_global). */
#pragma once

#include <stdint.h>

#include "ptq/quant/scheme.h"

/* Every bfloat16 value in this range is also an exact float16 value, so that one scale serves every format.  A group
 * of zeros gets the least of them.  Smaller bfloat16 scales are legal; a format that stores float16 rounds them
 * (calm_export_fit_f16).  Small floats keep to the upper end too: beyond it a weight is not one of a model that works.
 */
#define CALM_SCALE_MIN 0x1p-17
#define CALM_SCALE_MAX 65280.0
/* The least scales of groups that are not all zero: the least normal bfloat16, which readers do not flush, and the
 * least float16, which is exact where codes are computed for it. */
#define CALM_SCALE_LEAST_BF16 0x1p-126
#define CALM_SCALE_LEAST_F16 0x1p-24

/* The grid of one group.  scale may be negative. */
typedef struct calm_grid {
    float scale;
    uint8_t zero;
    float min;    /* 0 where the scheme has none */
} calm_grid;

/* What the job's stored scales are divided by, for its largest |w|, so that the largest scale is the largest storable
 * one; of a scheme with one scale for all, that scale, max|w| / 448; 0: the scheme has no such number. */
float calm_scale_global(const calm_scheme *scheme, float absmax);

/* Nearest storable scale of a group by itself, ties to even.  Of 16-bit scales 0 becomes CALM_SCALE_MIN, and another
 * magnitude below the least of their dtype becomes that, with the sign of `scale`; schemes whose scales have no sign
 * take the smallest for what is not above it, multiples of a global number the largest for what is beyond; one scale
 * for all is `global` whatever `scale` is.  Infinity
 * when the result would exceed what can be stored, NaN for NaN. */
float calm_scale_round(const calm_scheme *scheme, float global, double scale);

/* The same of scale [n], which may lie side by side; out [n]. */
void calm_scale_round_all(const calm_scheme *scheme, float global, size_t n, const double *scale, float *out);

/* The largest storable scale, as messages say it. */
double calm_scale_most(const calm_scheme *scheme);

/* The least storable scale of weights whose largest magnitude in the job is absmax. */
double calm_scale_least(const calm_scheme *scheme, float absmax);

/* Nearest storable minimum; infinity beyond the end. */
float calm_min_round(const calm_scheme *scheme, double min);

/* Round scales [n] and mins [n] (NULL: none) of the n groups of one super-block to what it can store together; a row's
 * last may have fewer.  Storable ones stay as they are.  With super-blocks of one group each is rounded by itself.
 * Infinity and NaN as above. */
void calm_scales_round(const calm_scheme *scheme, float global, size_t n, float *scales, float *mins);

/* Are scales of both signs storable, and different grids? */
bool calm_scale_mirrors(const calm_scheme *scheme);

/* Smallest and largest code: [0, 2^bits - 1], but 1 at the lower end for symmetric 8 bits, so that code - zero
 * is at least -127 and Q8_0 can carry it; with levels, [0, number of levels - 1]. */
int calm_code_min(const calm_scheme *scheme);
int calm_code_max(const calm_scheme *scheme);

/* Zero of every symmetric group: 2^(bits-1), or the family's. */
uint8_t calm_symmetric_zero(const calm_scheme *scheme);

/* The range that a grid has to span over w [n]: lo = min(min w, 0), hi = max(max w, 0), or without the zeros where a
 * minimum of any sign is stored. */
void calm_grid_span(const calm_scheme *scheme, const double *w, size_t n, double *lo, double *hi);

/* The grid from lo <= 0 to hi >= 0:
 *   symmetric   scale = 2 max(-lo, hi) / (2^bits - 1)
 *   asymmetric  scale = (hi - lo) / (2^bits - 1), zero = round(-lo / scale) with the rounded scale
 *   levels      the least scale under which lo and hi are between the least and the largest level
 *   minimum     scale = (hi - lo) / (2^bits - 1), min = lo
 * lo = hi = 0: the least scale.  The scale is infinite when out of range; the caller reports it. */
calm_grid calm_grid_between(const calm_scheme *scheme, float global, double lo, double hi);

/* The grids from p lo to p hi for p [n], all positive; out [n]. */
void calm_grid_between_all(const calm_scheme *scheme, float global, double lo, double hi, const double *p, size_t n,
                           calm_grid *out);

/* codes [n] of w [n]: clip(round_half_even(w / scale) + zero), or the code of the level nearest to (w - min) /
 * scale. */
void calm_grid_encode(const calm_scheme *scheme, calm_grid grid, const double *w, size_t n, uint8_t *codes);

/* w [n] = (codes - zero) * scale in float32, or level * scale + min, each operation rounded. */
void calm_grid_decode(const calm_scheme *scheme, calm_grid grid, const uint8_t *codes, size_t n, float *w);

/* For parts that work on levels: levels [n] nearest to x [n], in place, for groups with this zero. */
void calm_level_nearest(const calm_scheme *scheme, double zero, double *x, size_t n);

/* The level that a code represents, and the code of such a level. */
double calm_level_value(const calm_scheme *scheme, double zero, uint8_t code);
uint8_t calm_level_code(const calm_scheme *scheme, double zero, double level);

/* Fake quantization of activations, per token, dynamic but for the last rule, in float32 operation by operation as the
 * library that the rule is named after computes it; with lo = -2^(bits-1), hi = 2^(bits-1) - 1:
 *
 * compressed-tensors
 *   symmetric    s = max|x| / (2^(bits-1) - 0.5), z = 0
 *   asymmetric   s = (max(x, 0) - min(x, 0)) / (2^bits - 1), z = round_half_even(clip(lo - min(x, 0) / s, lo, hi))
 *   y = (round_half_even(clip(x / s + z, lo, hi)) - z) s
 * vLLM (dynamic_scaled_int8_quant, csrc/quantization/w8a8/int8/scaled_quant.cu, which has 8 bits alone)
 *   symmetric    s = max|x| / hi, 1/s computed as hi / max|x|, z = 0
 *   asymmetric   s = (max x - min x) / (2^bits - 1): the range need not hold 0; z = round_half_even(lo - min x / s),
 * not clipped; a row of equal values has s = 0 and becomes 0 y = (clip(round_half_even(x (1/s)) + z, lo, hi) - z) s,
 * sum and difference in whole numbers
 *
 * static   s = global, z = 0, for all rows (calm_act_static_scale)
 *
 * Rules for small floats: ptq/quant/act_levels.h, of which `global` is; else it is 0.
 *
 *   x, y  [n, d]  may be the same array; a row of zeros stays zero; a row with NaN or infinity gives NaN in it
 *   bits  2 to 8 */
void calm_actquant_rows(const float *x, size_t n, size_t d, int bits, bool asymmetric, calm_act_rule rule,
                        float global, float *y);

/* Are the codes of that rule, and their zero, whole numbers of 8 bits with a sign? */
bool calm_actquant_has_codes(int bits, bool asymmetric, calm_act_rule rule);

/* The codes, scale and zero of one row x [d] of such a rule: calm_actquant_rows gives (codes - zero) scale.  Of a row
 * with NaN or infinity, or whose range float32 does not hold, the codes say nothing and the scale is not finite. */
void calm_actquant_codes(const float *x, size_t d, int bits, bool asymmetric, calm_act_rule rule, float global,
                         int8_t *codes, float *scale, int32_t *zero);
