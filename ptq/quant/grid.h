/* Grids: the representable values of one group of weights, and of one token of activations.
 *
 *   w^ = scale * level + min,  level = code - zero, or from the scheme's table;  code in [code_min, code_max]
 *
 * A scale is rounded to the stored type before any code is computed, so that a checkpoint reader multiplies with
 * exactly the scale that the codes were chosen for (docs/method.md section 1).
 *
 * Some schemes store scales as multiples of one number: `global` is that number, the same in all calls for a job; 0
 * if the scheme has none (calm_scale_global). */
#pragma once

#include <stdint.h>

#include "ptq/quant/scheme.h"

/* Every bfloat16 value in this range is also an exact float16 value, so that one scale serves every format.  A
 * group of zeros gets the smallest one.  Smaller bfloat16 scales are allowed; a format that stores float16 rounds
 * them (calm_export_fit_f16).  FP8 and FP4 have the same upper limit: no working model has larger weights. */
#define CALM_SCALE_MIN 0x1p-17
#define CALM_SCALE_MAX 65280.0
/* Smallest scales of groups that are not all zero: the smallest normal bfloat16, which readers do not flush to
 * zero, and the smallest float16, which is exact if codes are computed with it. */
#define CALM_SCALE_LEAST_BF16 0x1p-126
#define CALM_SCALE_LEAST_F16 0x1p-24

/* The grid of one group.  The scale may be negative. */
typedef struct calm_grid {
    float scale;
    uint8_t zero;
    float min;    /* 0 if the scheme has no minimum */
} calm_grid;

/* Returns the divisor of the job's stored scales for its largest |w|, such that the largest scale is stored as the
 * largest storable one; for a scheme with one scale for all weights, that scale, max|w| / 448; 0: the scheme has no
 * such number. */
float calm_scale_global(const calm_scheme *scheme, float absmax);

/* Returns the nearest storable scale of a single group, ties to even.  16-bit scales: 0 becomes CALM_SCALE_MIN, and
 * a magnitude below the smallest of the dtype becomes that one, with the sign of `scale`.  Scales without a sign:
 * values up to the smallest one become the smallest.  Multiples of a global number: larger values become the
 * largest one.  One scale for all weights: returns `global` for any `scale`.  Infinity if the result is too large
 * to be stored, NaN for NaN. */
float calm_scale_round(const calm_scheme *scheme, float global, double scale);

/* Does the same for scale [n], with vector instructions where possible; out [n]. */
void calm_scale_round_all(const calm_scheme *scheme, float global, size_t n, const double *scale, float *out);

/* Returns the largest storable scale, for messages. */
double calm_scale_most(const calm_scheme *scheme);

/* Returns the smallest storable scale for weights whose largest magnitude in the job is absmax. */
double calm_scale_least(const calm_scheme *scheme, float absmax);

/* Returns the nearest storable minimum; infinity if it is too large. */
float calm_min_round(const calm_scheme *scheme, double min);

/* Rounds scales [n] and mins [n] (NULL: none) of the n groups of one super-block to values that it can store
 * together; the last super-block of a row may have fewer groups.  Storable values stay.  Super-blocks of one group:
 * rounds each by itself.  Infinity and NaN as above. */
void calm_scales_round(const calm_scheme *scheme, float global, size_t n, float *scales, float *mins);

/* Returns whether scales of both signs can be stored and give different grids. */
bool calm_scale_mirrors(const calm_scheme *scheme);

/* Return the smallest and largest code: [0, 2^bits - 1], but 1 at the lower end for symmetric 8 bits, so that code
 * - zero is at least -127, which Q8_0 can store; with levels, [0, number of levels - 1]. */
int calm_code_min(const calm_scheme *scheme);
int calm_code_max(const calm_scheme *scheme);

/* Returns the zero of every symmetric group: 2^(bits-1), or the family's. */
uint8_t calm_symmetric_zero(const calm_scheme *scheme);

/* Computes the range that a grid must cover for w [n]: lo = min(min w, 0), hi = max(max w, 0); without the zeros if
 * the scheme stores minima of any sign. */
void calm_grid_span(const calm_scheme *scheme, const double *w, size_t n, double *lo, double *hi);

/* Returns the grid from lo <= 0 to hi >= 0:
 *
 *   symmetric   scale = 2 max(-lo, hi) / (2^bits - 1)
 *   asymmetric  scale = (hi - lo) / (2^bits - 1), zero = round(-lo / scale) with the rounded scale
 *   levels      the smallest scale under which lo and hi are between the smallest and the largest level
 *   minimum     scale = (hi - lo) / (2^bits - 1), min = lo
 *
 * lo = hi = 0: the smallest scale.  The scale is infinite when out of range; the caller reports it. */
calm_grid calm_grid_between(const calm_scheme *scheme, float global, double lo, double hi);

/* Computes the grids from p lo to p hi for each p [n], all positive; out [n]. */
void calm_grid_between_all(const calm_scheme *scheme, float global, double lo, double hi, const double *p, size_t n,
                           calm_grid *out);

/* Computes codes [n] of w [n]: clip(round_half_even(w / scale) + zero), or the code of the level nearest to (w -
 * min) / scale. */
void calm_grid_encode(const calm_scheme *scheme, calm_grid grid, const double *w, size_t n, uint8_t *codes);

/* Computes w [n] = (codes - zero) * scale in float32, or level * scale + min, each operation rounded. */
void calm_grid_decode(const calm_scheme *scheme, calm_grid grid, const uint8_t *codes, size_t n, float *w);

/* Rounds x [n] in place to the nearest levels of groups with this zero. */
void calm_level_nearest(const calm_scheme *scheme, double zero, double *x, size_t n);

/* Return the level of a code, and the code of a level. */
double calm_level_value(const calm_scheme *scheme, double zero, uint8_t code);
uint8_t calm_level_code(const calm_scheme *scheme, double zero, double level);

/* Fake quantization of activations per token - dynamic except for the last rule - in float32, operation by
 * operation as in the library that the rule is named after; with lo = -2^(bits-1), hi = 2^(bits-1) - 1:
 *
 *   compressed-tensors
 *     symmetric    s = max|x| / (2^(bits-1) - 0.5), z = 0
 *     asymmetric   s = (max(x, 0) - min(x, 0)) / (2^bits - 1), z = round_half_even(clip(lo - min(x, 0) / s, lo, hi))
 *     y = (round_half_even(clip(x / s + z, lo, hi)) - z) s
 *   vLLM (dynamic_scaled_int8_quant, csrc/quantization/w8a8/int8/scaled_quant.cu; 8 bits only)
 *     symmetric    s = max|x| / hi, 1/s computed as hi / max|x|, z = 0
 *     asymmetric   s = (max x - min x) / (2^bits - 1): the range need not contain 0; z = round_half_even(lo - min x
 *                  / s), not clipped; a row of equal values has s = 0 and becomes 0
 *     y = (clip(round_half_even(x (1/s)) + z, lo, hi) - z) s, sum and difference in integers
 *   static   s = global, z = 0, for all rows (calm_act_static_scale)
 *
 * Rules for FP8 and FP4, which also read `global`: ptq/quant/act_levels.h.  For the other rules `global` is 0.
 *
 *   x, y  [n, d]  may be the same array; a row of zeros stays zero; a row with NaN or infinity becomes NaN
 *   bits  2 to 8 */
void calm_actquant_rows(const float *x, size_t n, size_t d, int bits, bool asymmetric, calm_act_rule rule,
                        float global, float *y);

/* Returns whether the codes and zero points of the rule are signed 8-bit integers. */
bool calm_actquant_has_codes(int bits, bool asymmetric, calm_act_rule rule);

/* Computes the codes, scale and zero point of one row x [d] under such a rule: calm_actquant_rows returns (codes -
 * zero) scale.  For a row with NaN or infinity, or a range that float32 does not hold, the scale is not finite and
 * the codes are undefined. */
void calm_actquant_codes(const float *x, size_t d, int bits, bool asymmetric, calm_act_rule rule, float global,
                         int8_t *codes, float *scale, int32_t *zero);
