/* The kernel that computes a block of queries with one set of instructions (attend.h). */
#pragma once

#include "ptq/tensor/attend.h"

/* Codes of numerators and of values up to these. */
#define CALM_ATTEND_P 16383
#define CALM_ATTEND_V 2047

/* Their codes are in keys->q. */
typedef struct calm_attend_block {
    const calm_attend_keys *keys;
    float q_scale[CALM_ATTEND_ROWS];                          /* with the scale of scores and log2(e)   */
    size_t first[CALM_ATTEND_ROWS], end[CALM_ATTEND_ROWS];    /* keys that a query sees                 */
    size_t begin, stop;                                       /* keys that any sees, out to whole sums  */
} calm_attend_block;

/* Write keys->context. */
typedef void calm_attend_kernel(const calm_attend_block *block);

calm_attend_kernel calm_attend_plain, calm_attend_avx2, calm_attend_avx512;
