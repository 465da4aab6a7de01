/* Fake quantization of activations to FP8 and FP4, as compressed-tensors computes it. */
#pragma once

#include "ptq/quant/scheme.h"

/* Returns whether the rule quantizes to small floats (FP8, FP4). */
bool calm_act_rule_is_float(calm_act_rule rule);

/* Returns whether the rule has one scale for all tokens (calm_act_static_scale). */
bool calm_act_rule_is_static(calm_act_rule rule);

/* Returns whether checkpoints do not name the rule: integers with a scale per token, which readers compute
 * differently. */
bool calm_act_rule_is_open(calm_act_rule rule);

/* Computes y [n, d] from x [n, d], which may be the same array, in float32 operation by operation:
 *
 *   FP8     per token      s = max|x| / 448; FP8_GROUPS: per group of 128; FP8_STATIC: s = global
 *   MXFP4   groups of 32   s = a power of two with max|x| / s in [3.5, 7)
 *   NVFP4   groups of 16   s = e4m3(global (max|x| / 6)) / global, 0.125 / global for 0
 *   y = level nearest to x / s, times s
 *
 * `global` is a number per linear, only for NVFP4 (calm_act_global) and FP8_STATIC (calm_act_static_scale).  Groups
 * of zeros stay zero; NaN and infinity give NaN in their group. */
void calm_act_levels(const float *x, size_t n, size_t d, calm_act_rule rule, float global, float *y);

/* Returns the global scale of NVFP4 activations, by which it divides scales, for inputs up to absmax; 0 for other
 * rules. */
float calm_act_global(calm_act_rule rule, float absmax);
