/* Loops that count faulty values in the bytes of a tensor. */
#pragma once

#include <stdint.h>

#include "ptq/tensor/dtype.h"

/* Faults of a scale. */
typedef enum calm_scale_fault {
    CALM_SCALE_NONFINITE,
    CALM_SCALE_ZERO,
    CALM_SCALE_MINUS_ZERO,
    CALM_SCALE_TINY,    /* magnitude below 2^-17 */
    CALM_SCALE_HUGE,    /* magnitude above 65504, the largest float16 */
    CALM_SCALE_ROUNDED, /* a float16 value that bfloat16 cannot represent */
    CALM_SCALE_MINUS,   /* a negative F8_E4M3 */
    CALM_N_SCALE_FAULTS
} calm_scale_fault;

/* Returns how many of n elements (F8_E4M3, F16, BF16, F32 or F64; any alignment; n <= 2^31) are NaN or infinite; 0 for
 * other dtypes. */
size_t calm_scan_nonfinite(calm_dtype dtype, const uint8_t *data, size_t n);

/* Adds to `counts` the number of n scales (F32, F16, BF16, F8_E4M3; U8: exponents) with each fault; adds nothing for
 * other dtypes.  F8_E4M3 scales are multiples of another scale, so they are never TINY or HUGE. */
void calm_scan_scales(calm_dtype dtype, const uint8_t *data, size_t n, size_t counts[CALM_N_SCALE_FAULTS]);

/* Returns how many of n signed bytes are outside [-limit, limit - 1]. */
size_t calm_scan_range(const uint8_t *data, size_t n, int limit);

/* Bytes of a memory page. */
#define CALM_SCAN_PAGE ((size_t)4096)

/* Returns how many of n / CALM_SCAN_PAGE pages are all zero. */
size_t calm_scan_holes(const uint8_t *data, size_t n);
