/* Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
 * SC11).  A value depends on (seed, stream, index) alone, never on what was drawn before, so every thread
 * count draws the same. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* 64 uniform random bits, number `index` of `stream`. */
uint64_t calm_rng_u64(uint64_t seed, uint64_t stream, uint64_t index);

/* Uniform in [0, 1) with 53 bits. */
double calm_rng_uniform(uint64_t seed, uint64_t stream, uint64_t index);

/* Standard normal (Box-Muller on two uniforms of the same block). */
double calm_rng_normal(uint64_t seed, uint64_t stream, uint64_t index);

/* Draw `k` of `n` different numbers in drawing order into out [k] (k <= n <= 2^32): a Fisher-Yates shuffle of
 * which only the touched places are kept.  false when memory for 2k entries is missing. */
_Bool calm_rng_choose(uint64_t seed, uint64_t stream, size_t n, size_t k, size_t *out);
