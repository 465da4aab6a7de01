/* SmoothQuant's scale before it is shared and normalised.  Only files of this folder and their tests include it. */
#pragma once

#include "algorithms/part.h"

/* s [n] = max(absmax^alpha / max(w_max, 1e-5)^(1 - alpha), 1e-5). */
void calm_smooth_scale(double alpha, size_t n, const float *absmax, const float *w_max, double *s);
