/* Scales and minima of a super-block: integers times one float16 each, as in ggml's k-quants.
 *
 *   scale of group g = d s[g],  minimum = -(dmin m[g]),  s and m within the bits of the scheme's scale code
 *
 * Products of a float16 and an integer of at most 8 bits are exact in float32, so the groups' effective scales
 * determine d and s[g] of the super-block. */
#pragma once

#include "ptq/quant/scheme.h"

/* The parts of a super-block of n groups; minima are 0 if the scheme has none. */
typedef struct calm_super_block {
    uint16_t d, dmin;      /* float16 */
    int scales[CALM_SUPER_MAX], minima[CALM_SUPER_MAX];
} calm_super_block;

/* Returns whether the scheme's scales are integers times a float16. */
bool calm_scheme_is_super_block(const calm_scheme *scheme);

/* Return the storable scale and minimum of a single group, before its super-block is rounded: with the sign of the
 * code, in its range, not 0.  A scale beyond float16's range becomes infinite. */
float calm_super_scale(const calm_scheme *scheme, double scale);
float calm_super_minimum(double minimum);

/* Computes calm_super_scale of scale [n]; NaN stays NaN; out [n]. */
void calm_super_scales(const calm_scheme *scheme, size_t n, const double *scale, float *out);

/* Rounds scales [n] and mins [n] (NULL: none) together: of all d under which the largest is an integer multiple,
 * the one with the smallest sum of squared errors.  Storable values stay.  No scale becomes 0.  Infinity: out of
 * range. */
void calm_super_round(const calm_scheme *scheme, size_t n, float *scales, float *mins);

/* Splits storable scales [n] and mins [n] (NULL: none) into parts; false: they are not storable. */
bool calm_super_split(const calm_scheme *scheme, size_t n, const float *scales, const float *mins,
                      calm_super_block *out);
