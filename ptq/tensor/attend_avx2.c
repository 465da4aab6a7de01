/* Integer attention with AVX2, which multiplies 16-bit integers in pairs. */
#include "ptq/tensor/attend_kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET        __attribute__((target("avx2")))
#define LANES         8
#define TILE_ROWS     4
#define KERNEL        calm_attend_avx2
#define dot(s, a, b)  ((whole)_mm256_add_epi32((__m256i)(s), _mm256_madd_epi16((__m256i)(a), (__m256i)(b))))
#define greater(a, b) ((real)_mm256_max_ps((__m256)(a), (__m256)(b)))
#include "ptq/tensor/attend_tile.h"

#else

void calm_attend_avx2(const calm_attend_block *block)
{
    calm_attend_plain(block);
}

#endif
