/* Interface of the matrix-vector kernels, one per instruction set (gemv.h). */
#pragma once

#include "ptq/tensor/gemv.h"

/* Columns of a row of floats that are accumulated in parallel. */
#define CALM_GEMV_COLUMNS ((size_t)32)

/* A piece of a product: rows first .. end - 1; for codes, whole panels of rows. */
typedef struct calm_gemv_piece {
    const calm_gemv_matrix *matrix;
    const float *x;           /* padded with zeros; for bfloat16, the even ones of each 32 values come first    */
    const float *bias;
    float *y;
    size_t first, end;
} calm_gemv_piece;

/* Computes the piece's rows of y. */
typedef void calm_gemv_kernel(const calm_gemv_piece *piece);

calm_gemv_kernel calm_gemv_plain, calm_gemv_avx2, calm_gemv_avx512;
