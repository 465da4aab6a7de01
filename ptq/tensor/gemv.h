/* Products of a matrix and one row of activations (BLAS: gemv), which take as long as the matrix takes to be read: it
 * stays as it is stored, in float32, bfloat16, or codes of 4 or 8 bits.
 *
 *   y_o = bias_o + sum_i x_i w_oi,   of codes bias_o + sum over groups g of s_og sum over i of g of x_i (c_oi - z_og)
 *
 * Every operation is rounded alone, and sums have one order for all sets of instructions and numbers of threads: of
 * floats 32 sums of every 32nd column, added by halves; of codes, whose differences with their zeros are exact, in each
 * group four sums of a quarter of the columns.  With k columns, n in a group, and g groups a term passes at most
 * k/32 + 8 roundings, and n/4 + 4 + g. */
#pragma once

#include "ptq/tensor/int_product.h"

/* A matrix [out, in] in one of three forms. */
typedef struct calm_gemv_matrix {
    size_t out, in;
    const void *floats;             /* [out, in] of any alignment; NULL: codes             */
    bool bf16;                      /* they are bfloat16, else float32                     */
    const calm_int_weight *codes;   /* packed by calm_int_pack                             */
} calm_gemv_matrix;

/* Bytes of the matrix that a product reads: elements, or codes with their scales and zeros. */
size_t calm_gemv_bytes(const calm_gemv_matrix *matrix);

/* y [out] = the product with x [in] on ctx's threads; bias [out] or NULL.  Fails as calm_int_choose. */
calm_status calm_gemv(calm_ctx *ctx, const calm_gemv_matrix *matrix, const float *bias, const float *x, float *y);

/* w [n, in] = rows first .. first + n - 1 in float32: of codes (c - z) s, rounded once. */
void calm_gemv_widen(const calm_gemv_matrix *matrix, size_t first, size_t n, float *w);
