/* SmoothQuant's scale before calm_channel_scale normalises it.  Only this folder and its tests include this file. */
#pragma once

#include "algorithms/part.h"

/* Computes s [n] = max(absmax^alpha / max(w_max, 1e-5)^(1 - alpha), 1e-5). */
void calm_smooth_scale(double alpha, size_t n, const float *absmax, const float *w_max, double *s);
