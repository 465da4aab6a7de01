/* A step of the scan of Mamba-2, for its two directions.  Only mamba*.c include it. */
#pragma once

#include "ptq/model/mamba.h"

/* log [n] = G_i of tokens begin .. begin + n - 1 of a head: the sum of decays up to each. */
void calm_mamba_sum_decays(const calm_mamba_shape *shape, const calm_mamba_rows *rows, size_t head, size_t begin,
                           size_t n, double *log);
