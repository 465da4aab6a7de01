/* A step of Mamba-2's scan that its forward and backward pass share.  Only mamba*.c include it. */
#pragma once

#include "ptq/layers/mamba.h"

/* Computes log [n], G_i of tokens begin .. begin + n - 1 of a head: the sum of their decays up to token i. */
void calm_mamba_sum_decays(const calm_mamba_shape *shape, const calm_mamba_rows *rows, size_t head, size_t begin,
                           size_t n, double *log);
