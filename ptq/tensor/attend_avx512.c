/* Integer attention with AVX-512 VNNI, which adds two 16-bit products to a 32-bit sum in one instruction. */
#include "ptq/tensor/attend_kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET        __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))
#define LANES         16
#define TILE_ROWS     8
#define KERNEL        calm_attend_avx512
#define dot(s, a, b)  ((whole)dot_in_place((__m512i)(s), (__m512i)(a), (__m512i)(b)))
#define greater(a, b) ((real)_mm512_max_ps((__m512)(a), (__m512)(b)))

/* Uses the instruction through inline assembly, for the reason given in int_avx512.c. */
TARGET __attribute__((always_inline)) static inline __m512i dot_in_place(__m512i sum, __m512i a, __m512i b)
{
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}

#include "ptq/tensor/attend_tile.h"

#else

void calm_attend_avx512(const calm_attend_block *block)
{
    calm_attend_plain(block);
}

#endif
