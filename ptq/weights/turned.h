/* Reads a strided part of a stored tensor as a matrix or vector: transposed, or every second row or element. */
#pragma once

#include "ptq/io/safetensors.h"

/* Element [r, c] is element first + r row_step + c column_step of `whole`, which outlives it; column_step is 1, or else
 * row_step is 1 or 2. */
typedef struct calm_strided_view {
    const calm_tensor *whole;
    size_t first, row_step, column_step;
} calm_strided_view;

/* The source of a tensor [rows, columns] whose `entry` is a calm_strided_view. */
extern const calm_tensor_source calm_turned_source;
