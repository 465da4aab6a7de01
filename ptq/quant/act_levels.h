/* Fake quantization of activations to small floats, as compressed-tensors computes it. */
#pragma once

#include "ptq/quant/scheme.h"

/* Is it a rule for small floats? */
bool calm_act_rule_is_float(calm_act_rule rule);

/* Is there one scale for all tokens (calm_act_static_scale)? */
bool calm_act_rule_is_static(calm_act_rule rule);

/* Is it one that a checkpoint does not say: whole numbers with a scale per token, as one reader or another finds it? */
bool calm_act_rule_is_open(calm_act_rule rule);

/* y [n, d] of x [n, d], which may be the same array, in float32 operation by operation:
 *
 *   FP8     per token      s = max|x| / 448; FP8_GROUPS the same of groups of 128; FP8_STATIC s = global
 *   MXFP4   groups of 32   s = a power of two with max|x| / s in [3.5, 7)
 *   NVFP4   groups of 16   s = e4m3(global (max|x| / 6)) / global, 0.125 / global for 0
 *   y = level nearest to x / s, times s
 *
 * `global` is the linear's own number, of NVFP4 (calm_act_global) and FP8_STATIC (calm_act_static_scale) alone.  Groups
 * of zeros stay zero; NaN and infinity give NaN in their group. */
void calm_act_levels(const float *x, size_t n, size_t d, calm_act_rule rule, float global, float *y);

/* What NVFP4 divides its scales by, for inputs of at most absmax; 0 for other rules. */
float calm_act_global(calm_act_rule rule, float absmax);
