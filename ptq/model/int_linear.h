/* Linears that are computed in integer arithmetic (ptq/tensor/int_product.h) instead of simulated in float.
 *
 * Codes, scales and zeros are those that the simulation multiplies out, of the input by the same operations.  With
 * x = s_x (a - z) and w = s_w (c - z') of one output and token, exact numbers, u = 2^-24, and k columns in g groups of
 * scales,
 *
 *   |y_int - y_float| <= ((g + 3) + (k + 4)) u S + o(u),   S = |bias| + sum_i |x_i w_i|
 *
 * since whole sums are exact, each is rounded once to float32, and at most g + 2 float operations follow; the
 * simulation rounds x and w to float32 (the latter exactly where scales have 16 bits) and adds k products and the bias
 * in any order. */
#pragma once

#include "ptq/model/weight.h"
#include "ptq/tensor/int_product.h"

/* Where ctx->ints and the scheme of the input has codes of 8 bits, or ctx->decode and the input stays float
 * (row_linear.h), the weight can be packed, and `memory` [out, in], where the float weight would be, is large enough:
 * pack it there and set weight->ints.  Otherwise weight->ints is NULL, and nothing is written.  The weight says how its
 * input is quantized. */
void calm_int_linear_take(const calm_ctx *ctx, const calm_int_source *source, float *memory, calm_weight *weight);

/* y[i] [T, out] = such linear i of n applied to x [T, in], on ctx's threads.  All quantize it alike
 * (calm_weight_apply_each), which is done once.  It holds calm_weight_apply_scratch_bytes, and of ctx's workers a row
 * of floats each where the input is scaled.  Fails as calm_int_choose, and with CALM_ENOMEM. */
calm_status calm_int_linear_apply(calm_ctx *ctx, size_t n, const calm_weight *const *weight, const float *x,
                                  size_t n_tokens, float *const *y);
