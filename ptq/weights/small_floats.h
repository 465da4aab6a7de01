/* Reads weights that are stored as small floats with scales as floats.
 *
 *   E4M3   a byte each                                  value = code * scale, in float32, then rounded to the dtype
 *   E2M1   two in a byte, the lower nibble first        (as transformers and compressed-tensors do)
 *
 * A tensor [.., rows, columns] is one or several matrices; a block of a matrix shares a scale. */
#pragma once

#include "ptq/io/safetensors.h"

typedef struct calm_small_floats {
    calm_tensor codes;                    /* as stored                                                        */
    calm_tensor scales;                   /* F32, F16, BF16, F8_E4M3, or exponents of two as F8_E8M0 or U8    */
    bool packed;                          /* true: E2M1, `columns` is even; false: E4M3                       */
    size_t rows, columns;                 /* shape of one matrix                                              */
    size_t block_rows, block_columns;     /* shape of a block with one scale; the last ones may be smaller    */
    size_t grid_rows, grid_columns;       /* shape of the scales of one matrix                                */
    float divisor;                        /* divisor of all scales: 1, or the global scale of NVFP4           */
} calm_small_floats;

/* The source of a tensor whose `entry` is a calm_small_floats and whose dtype is F32, F16 or BF16.  It allocates
 * nothing.  CALM_ENUMERIC: a scale or a value is NaN or infinite, with tensor and index. */
extern const calm_tensor_source calm_small_floats_source;
