/* Loops over stored values; each counts what is wrong in one pass. */
#pragma once

#include <stdint.h>

#include "ptq/tensor/dtype.h"

/* What may be wrong with a scale. */
typedef enum calm_scale_fault {
    CALM_SCALE_NONFINITE,
    CALM_SCALE_ZERO,
    CALM_SCALE_MINUS_ZERO,
    CALM_SCALE_TINY,
    CALM_SCALE_HUGE,
    CALM_SCALE_ROUNDED, /* float16 that bfloat16 does not hold */
    CALM_SCALE_MINUS,   /* a small float below zero            */
    CALM_N_SCALE_FAULTS
} calm_scale_fault;

/* How many of n float elements (any alignment, at most 2^31), those of F8_E4M3 too, are NaN or infinite; 0 for other
 * dtypes. */
size_t calm_scan_nonfinite(calm_dtype dtype, const uint8_t *data, size_t n);

/* Add to counts how many of n scales (F32, F16, BF16, F8_E4M3; U8: exponents) have each fault; nothing for other
 * dtypes.  Small floats are multiples of another scale, so that none is tiny or huge. */
void calm_scan_scales(calm_dtype dtype, const uint8_t *data, size_t n, size_t counts[CALM_N_SCALE_FAULTS]);

/* How many of n signed bytes are not in [-limit, limit - 1]. */
size_t calm_scan_range(const uint8_t *data, size_t n, int limit);

/* Bytes of a page. */
#define CALM_SCAN_PAGE ((size_t)4096)

/* How many of n / CALM_SCAN_PAGE pages are all zero. */
size_t calm_scan_holes(const uint8_t *data, size_t n);
