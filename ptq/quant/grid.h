/* Grids: the storable values of one group of weights, and of one token of activations.
 *
 *   w^ = scale * (code - zero),  code in [code_min, 2^bits - 1]
 * A scale is rounded to the scheme's scale_dtype before any code is computed, so what a checkpoint reader
 * multiplies with is exactly what the codes were chosen for (docs/method.md section 1). */
#ifndef CALM_QUANT_GRID_H
#define CALM_QUANT_GRID_H

#include <stdint.h>

#include "ptq/quant/scheme.h"

/* Every bfloat16 value in this range is also an exact float16 value, so one scale serves every format. */
#define CALM_SCALE_MIN 0x1p-17
#define CALM_SCALE_MAX 65280.0

/* The grid of one group.  scale may be negative. */
typedef struct calm_grid {
    float scale;
    uint8_t zero;
} calm_grid;

/* Nearest storable scale, ties to even; a magnitude below CALM_SCALE_MIN (zero too) becomes CALM_SCALE_MIN with
 * the sign of `scale`.  Infinity when the result would exceed CALM_SCALE_MAX, NaN for NaN. */
float calm_scale_round(double scale, calm_dtype dtype);

/* Smallest and largest code: [0, 2^bits - 1], but 1 at the lower end for symmetric 8 bits, so that code - zero
 * is at least -127 and Q8_0 can carry it. */
int calm_code_min(const calm_scheme *scheme);
int calm_code_max(const calm_scheme *scheme);

/* Zero of every symmetric group: 2^(bits-1). */
uint8_t calm_symmetric_zero(const calm_scheme *scheme);

/* lo = min(min w, 0), hi = max(max w, 0) over w [n]. */
void calm_grid_span(const double *w, size_t n, double *lo, double *hi);

/* The grid from lo <= 0 to hi >= 0:
 *   symmetric   scale = 2 max(-lo, hi) / (2^bits - 1)
 *   asymmetric  scale = (hi - lo) / (2^bits - 1), zero = round(-lo / scale) with the rounded scale
 * lo = hi = 0: scale = CALM_SCALE_MIN.  The scale is infinite when out of range; the caller reports it. */
calm_grid calm_grid_between(const calm_scheme *scheme, double lo, double hi);

/* codes [n] of w [n]: clip(round_half_even(w / scale) + zero). */
void calm_grid_encode(const calm_scheme *scheme, calm_grid grid, const double *w, size_t n, uint8_t *codes);

/* w [n] = (codes - zero) * scale in float32. */
void calm_grid_decode(calm_grid grid, const uint8_t *codes, size_t n, float *w);

/* Fake quantization of activations, per token, dynamic, in float32 operation by operation as the library that the rule
 * is named after computes it; with lo = -2^(bits-1), hi = 2^(bits-1) - 1:
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
 *   x, y  [n, d]  may be the same array; a row of zeros stays zero; a row with NaN or infinity gives NaN in it
 *   bits  2 to 8 */
void calm_actquant_rows(const float *x, size_t n, size_t d, int bits, bool asymmetric, calm_act_rule rule,
                            float *y);

#endif
