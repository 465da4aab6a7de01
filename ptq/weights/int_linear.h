/* Linears that are computed in integer arithmetic (ptq/tensor/int_product.h) instead of simulated in float.
 *
 * Both use the same codes, scales and zeros, and quantize the input by the same operations.  For one output and token
 * let x = s_x (a - z) and w = s_w (c - z') be exact numbers, u = 2^-24, and k columns in g groups of scales:
 *
 *   |y_int - y_float| <= ((g + 3) + (k + 4)) u S + o(u),   S = |bias| + sum_i |x_i w_i|
 *
 * since integer sums are exact, each is rounded once to float32, and at most g + 2 float operations follow; the
 * simulation rounds x and w to float32 (w is exact where scales have 16 bits) and adds k products and the bias in any
 * order. */
#pragma once

#include "ptq/tensor/int_product.h"
#include "ptq/weights/weight.h"

/* Packs the weight into `memory` [out, in], the place of the float weight, and sets weight->ints, if it can be packed,
 * fits into `memory`, and either ctx->ints is set and the input has 8-bit codes, or ctx->decode is set and the input
 * stays float (row_linear.h).  Otherwise sets weight->ints to NULL and writes nothing.  weight->act_bits etc. must be
 * set. */
void calm_int_linear_take(const calm_ctx *ctx, const calm_int_source *source, float *memory, calm_weight *weight);

/* Applies n such linears to x [T, in], y[i] [T, out], on ctx's threads.  All quantize x alike (calm_weight_apply_each),
 * which is done once.  It holds calm_weight_apply_scratch_bytes of ctx->scratch, and each worker a row of floats where
 * the input is scaled.  Fails as calm_int_choose, and with CALM_ENOMEM. */
calm_status calm_int_linear_apply(calm_ctx *ctx, size_t n, const calm_weight *const *weight, const float *x,
                                  size_t n_tokens, float *const *y);
