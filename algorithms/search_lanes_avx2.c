/* Candidates of a scale search in vectors of AVX2. */
#include "algorithms/search_lanes.h"

#if defined(__x86_64__)
#include <immintrin.h>

/* Of equal numbers, and where one is NaN, the instructions take the second operand. */
#define TARGET          __attribute__((target("avx2")))
#define LANES           4
#define ABOVE(x, limit) ((reals)_mm256_max_pd((__m256d)(limit), (__m256d)(x)))
#define BELOW(x, limit) ((reals)_mm256_min_pd((__m256d)(limit), (__m256d)(x)))
#define KERNELS         calm_lanes_avx2
#include "algorithms/search_lanes_tile.h"

#else

const calm_lane_kernels calm_lanes_avx2;

#endif
