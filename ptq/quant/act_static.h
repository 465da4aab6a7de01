/* One scale for all activations of a job, learned on the calibration text. */
#pragma once

#include "ptq/quant/scheme.h"

/* Inputs that the scale is for. */
typedef struct calm_act_rows {
    const float *x;          /* [n, d]                                           */
    size_t n, d;
    const double *weights;   /* [d] >= 0, what a squared error of a column counts */
    const float *in_scale;   /* [d] > 0 that divides x, or NULL                  */
    const float *absmax;     /* [d] max |x| over all rows that there were        */
} calm_act_rows;

/* The scale s, rounded as the scheme rounds scales.  For small floats s = max |x / in_scale| / 448, as llm-compressor
 * has it: the relative error of their levels does not depend on s.  For whole numbers that of least
 *
 *   sum_tj weights_j (y_tj - s q_tj)^2,   y = x / in_scale,  q = clip(round_half_even(y / s))
 *
 * over s_k = 2^(-k/4) s_0, with s_0 what spans the largest |y| of all (absmax), then from the best of them by
 * s = sum w y q / sum w q^2, where MKQ-BERT's gradient of the scale is zero, while that improves.  Of many rows every
 * k-th counts.  Without rows s_0; infinite when it cannot be stored.  Small floats read neither x nor weights. */
float calm_act_static_scale(const calm_scheme *scheme, const calm_act_rows *rows);
