/* Activation sparsity by a Gaussian's quantile (Gemma 3n): about (1 - share) n of a row's n values stay positive.
 *
 *   y = max(x - mean - z std, 0),  z with Phi(z) = share,  std^2 = mean of (x - mean)^2
 *
 * Reference: transformers' modeling_gemma3n.py, _gaussian_topk. */
#pragma once

#include "ptq/base/context.h"

/* Computes y from x [n_rows, width] in place, 0 < share < 1, on ctx's threads. */
void calm_gaussian_top_k(calm_ctx *ctx, float share, size_t n_rows, size_t width, float *x);
