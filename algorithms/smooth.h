/* SmoothQuant's scale before it is shared and normalised, for the fixtures. */
#ifndef CALM_ALGORITHMS_SMOOTH_H
#define CALM_ALGORITHMS_SMOOTH_H

#include "algorithms/part.h"

/* s [n] = max(absmax^alpha / max(w_max, 1e-5)^(1 - alpha), 1e-5). */
void calm_smooth_scale(double alpha, size_t n, const float *absmax, const float *w_max, double *s);

#endif
