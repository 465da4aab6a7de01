/* Scales and minima of a super-block: integers times one float16 each, as in ggml's k-quants.
 *
 *   scale of group g = d s[g],  minimum = -(dmin m[g]),  s and m within the bits of the scheme's scale code
 * Products of a float16 and a whole number of at most 8 bits are exact in float32, so a group's effective scale says
 * all: d and s[g] can be found again from those of the super-block. */
#pragma once

#include "ptq/quant/scheme.h"

/* A super-block of n groups taken apart; minima are 0 where the scheme has none. */
typedef struct calm_super_block {
    uint16_t d, dmin;      /* float16 */
    int scales[CALM_SUPER_MAX], minima[CALM_SUPER_MAX];
} calm_super_block;

/* Are the scheme's scales whole numbers times a float16? */
bool calm_super_is(const calm_scheme *scheme);

/* A group's scale and minimum by themselves, before its super-block is rounded: within the range of the code, of its
 * sign, not 0.  A scale beyond float16's range becomes infinite. */
float calm_super_scale(const calm_scheme *scheme, double scale);
float calm_super_minimum(double minimum);

/* calm_super_scale of scale [n], NaN for NaN; out [n]. */
void calm_super_scales(const calm_scheme *scheme, size_t n, const double *scale, float *out);

/* Round scales [n] and mins [n] (NULL: none) together: of all d under which the largest is a whole number the one with
 * the least sum of squared errors.  Storable ones stay as they are.  No scale becomes 0.  Infinity: out of range. */
void calm_super_round(const calm_scheme *scheme, size_t n, float *scales, float *mins);

/* Take storable scales [n] and mins [n] (NULL: none) apart; false: they are not storable. */
bool calm_super_split(const calm_scheme *scheme, size_t n, const float *scales, const float *mins,
                      calm_super_block *out);
