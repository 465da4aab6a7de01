/* Candidates of a scale search in vectors of AVX-512. */
#include "algorithms/search_lanes.h"

#if defined(__x86_64__)
#include <immintrin.h>

/* Of equal numbers, and where one is NaN, the instructions take the second operand. */
#define TARGET          __attribute__((target("avx512f")))
#define LANES           8
#define ABOVE(x, limit) ((reals)_mm512_max_pd((__m512d)(limit), (__m512d)(x)))
#define BELOW(x, limit) ((reals)_mm512_min_pd((__m512d)(limit), (__m512d)(x)))
#define KERNELS         calm_lanes_avx512
#include "algorithms/search_lanes_tile.h"

#else

const calm_lane_kernels calm_lanes_avx512;

#endif
