/* How the tools that made the formats round weights by themselves, with nothing known of the inputs: what calm's grids
 * must not fall behind. */
#ifndef CALM_TESTS_NAIVE_ROUNDING_H
#define CALM_TESTS_NAIVE_ROUNDING_H

#include "ptq/quant/scheme.h"

/* The weights that a file of the scheme's format would hold, out [rows, n] of w [rows, n]; n is a multiple of 256.
 * weight [rows, n]: what each error counts in the sum of squares that the tool searches the least of; 1 where it
 * searches nothing.  `gguf`: of MXFP4, which both tools write, llama-quantize's rule.  Returns the tool's name. */
const char *naive_round(const calm_scheme *scheme, bool gguf, const float *w, size_t rows, size_t n, float *out,
                        float *weight);

/* The same of mx.quantize (affine_quantize of MLX's ops.cpp) in bfloat16, group by group: out [n] of w [n], all of one
 * group.  Codes are of the scale before it is rounded. */
void naive_round_mlx(int bits, const float *w, size_t n, float *out);

#endif
