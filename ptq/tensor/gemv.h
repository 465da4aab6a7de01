/* Matrix-vector products (BLAS: gemv) of weights that keep their stored format: float32, bfloat16, or codes of 4 or
 * 8 bits.  Their time is that of reading the matrix.
 *
 *   y_o = bias_o + sum_i x_i w_oi,   of codes bias_o + sum over groups g of s_og sum over i of g of x_i (c_oi - z_og)
 *
 * Every operation is rounded separately, and sums have one order for all instruction sets and numbers of threads:
 * for floats 32 sums, each of every 32nd column, added pairwise by halves; for codes, whose differences from their
 * zeros are exact, four sums per group, each of a quarter of the columns.  With k columns, n per group and g
 * groups, a term passes at most k/32 + 8 roundings (floats) or n/4 + 4 + g (codes). */
#pragma once

#include "ptq/tensor/int_product.h"

/* A matrix [out, in] in one of three formats. */
typedef struct calm_gemv_matrix {
    size_t out, in;
    const void *floats;             /* [out, in], any alignment; NULL: codes               */
    bool bf16;                      /* floats are bfloat16, else float32                   */
    const calm_int_weight *codes;   /* packed by calm_int_pack                             */
} calm_gemv_matrix;

/* Returns the bytes of the matrix that a product reads: elements, or codes with their scales and zeros. */
size_t calm_gemv_bytes(const calm_gemv_matrix *matrix);

/* Computes y [out] = W x [in] + bias on ctx's threads; bias [out] or NULL.  Fails as calm_int_choose. */
calm_status calm_gemv(calm_ctx *ctx, const calm_gemv_matrix *matrix, const float *bias, const float *x, float *y);

/* Computes w [n, in] = rows first .. first + n - 1 in float32; codes become (c - z) s, rounded once. */
void calm_gemv_widen(const calm_gemv_matrix *matrix, size_t first, size_t n, float *w);
