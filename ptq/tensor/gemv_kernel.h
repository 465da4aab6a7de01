/* The kernel that multiplies a matrix by a row with one set of instructions (gemv.h). */
#pragma once

#include "ptq/tensor/gemv.h"

/* Columns that are summed side by side in a row of floats. */
#define CALM_GEMV_COLUMNS ((size_t)32)

/* A piece of a product: rows first .. end - 1, of codes whole panels. */
typedef struct calm_gemv_piece {
    const calm_gemv_matrix *matrix;
    const float *x;           /* zeros behind the last column; for bfloat16 the even ones of each 32 come first */
    const float *bias;
    float *y;
    size_t first, end;
} calm_gemv_piece;

/* Write the piece of y. */
typedef void calm_gemv_kernel(const calm_gemv_piece *piece);

calm_gemv_kernel calm_gemv_plain, calm_gemv_avx2, calm_gemv_avx512;
