/* Interface of the attention kernels, one per instruction set (attend.h). */
#pragma once

#include "ptq/tensor/attend.h"

/* Largest codes of numerators p and of values v. */
#define CALM_ATTEND_P 16383
#define CALM_ATTEND_V 2047

/* A block of queries, whose codes are in keys->q. */
typedef struct calm_attend_block {
    const calm_attend_keys *keys;
    float q_scale[CALM_ATTEND_ROWS];                          /* scale of each query's codes times scale of scores
                                                               * times log2(e) */
    size_t first[CALM_ATTEND_ROWS], end[CALM_ATTEND_ROWS];    /* range of keys of each query            */
    size_t begin, stop;                                       /* range of keys of all queries, extended to multiples
                                                               * of CALM_ATTEND_KEYS */
} calm_attend_block;

/* Computes keys->context. */
typedef void calm_attend_kernel(const calm_attend_block *block);

calm_attend_kernel calm_attend_plain, calm_attend_avx2, calm_attend_avx512;
