/* Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11).
 * A value depends on (seed, stream, index) alone, never on earlier draws, so any number of threads draws the same
 * values. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Returns 64 uniform random bits, number `index` of `stream`. */
uint64_t calm_rng_u64(uint64_t seed, uint64_t stream, uint64_t index);

/* Returns a uniform number in [0, 1) with 53 bits. */
double calm_rng_uniform(uint64_t seed, uint64_t stream, uint64_t index);

/* Returns a standard normal number (Box-Muller on two uniforms of the same block). */
double calm_rng_normal(uint64_t seed, uint64_t stream, uint64_t index);

/* Draws `k` different numbers below `n` into out [k], in drawing order (k <= n <= 2^32): a Fisher-Yates shuffle
 * that keeps only the entries it touches.  Returns false if memory for 2k entries cannot be allocated. */
_Bool calm_rng_choose(uint64_t seed, uint64_t stream, size_t n, size_t k, size_t *out);
