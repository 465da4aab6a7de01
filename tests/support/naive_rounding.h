/* Rounding of weights by the formats' own tools, without calibration inputs: calm's grids must not be worse. */
#ifndef CALM_TESTS_NAIVE_ROUNDING_H
#define CALM_TESTS_NAIVE_ROUNDING_H

#include "ptq/quant/scheme.h"

/* Rounds w [rows, n] to the weights out [rows, n] that a file of the scheme's format would hold; n is a multiple of
 * 256. weight [rows, n]: weights of the errors in the sum of squares that the tool minimises; 1 if it minimises
 * nothing. `gguf`: use llama-quantize's rule for MXFP4, which two tools write.  Returns the tool's name. */
const char *naive_round(const calm_scheme *scheme, bool gguf, const float *w, size_t rows, size_t n, float *out,
                        float *weight);

/* Rounds one group w [n] to out [n] as mx.quantize (affine_quantize of MLX's ops.cpp) does in bfloat16.  Codes use
 * the scale before it is rounded. */
void naive_round_mlx(int bits, const float *w, size_t n, float *out);

#endif
