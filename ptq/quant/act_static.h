/* A static scale: one for all activations of a job, computed from the calibration set. */
#pragma once

#include "ptq/quant/scheme.h"

/* Calibration inputs of the scale. */
typedef struct calm_act_rows {
    const float *x;          /* [n, d]                                           */
    size_t n, d;
    const double *weights;   /* [d] >= 0, weight of a squared error in each column */
    const float *in_scale;   /* [d] > 0, divides x; NULL: ones                   */
    const float *absmax;     /* [d] max |x| over the whole calibration set       */
} calm_act_rows;

/* Returns the scale s, rounded as the scheme rounds scales.  For FP8, s = max |x / in_scale| / 448, as in
 * llm-compressor: the relative error of FP8 levels does not depend on s.  For integers, s minimizes
 *
 *   sum_tj weights_j (y_tj - s q_tj)^2,   y = x / in_scale,  q = clip(round_half_even(y / s))
 *
 * over s_k = 2^(-k/4) s_0, where s_0 covers the largest |y| (absmax); from the best s_k it iterates s = sum w y q /
 * sum w q^2, where MKQ-BERT's gradient of the scale is zero, as long as the error falls.  From a large number of
 * rows it uses every k-th.  Without rows it returns s_0; infinity if the scale cannot be stored.  FP8 reads neither
 * x nor weights. */
float calm_act_static_scale(const calm_scheme *scheme, const calm_act_rows *rows);
