/* Integer products with AVX-512 VNNI, which adds four products to a 32-bit sum in one instruction. */
#include "ptq/tensor/int_kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))
#define INLINE TARGET __attribute__((always_inline)) static inline
#define LANES  16

typedef __m512i whole;
typedef __m512 real;

#define load_bytes(from)     _mm512_loadu_si512(from)
#define load_words(from)     _mm512_loadu_si512(from)
#define load_floats(from)    _mm512_loadu_ps(from)
#define store_floats(to, x) _mm512_storeu_ps(to, x)
#define spread(n)            _mm512_set1_epi32(n)
#define spread_float(x)      _mm512_set1_ps(x)
#define low(x)               _mm512_and_si512(x, _mm512_set1_epi8(15))
#define high(x)              low(_mm512_srli_epi16(x, 4))
#define subtract(a, b)       _mm512_sub_epi32(a, b)
#define multiply_words(a, b) _mm512_mullo_epi32(a, b)
#define dot(sum, w, x)       dot_in_place(sum, w, x)
#define dot_small            dot
#define to_real(x)           _mm512_cvtepi32_ps(x)
#define times(a, b)          _mm512_mul_ps(a, b)
#define plus(a, b)           _mm512_add_ps(a, b)

/* Uses the instruction through inline assembly: with the intrinsic, gcc 12 copies every sum to another register and
 * back, and spills two. */
INLINE whole dot_in_place(whole sum, whole w, whole x)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x));
    return sum;
}

#include "ptq/tensor/int_tile.h"

DEFINE_TILE(tile_8x2_of_8, 8, 2, EIGHT_8)
DEFINE_TILE(tile_4x4_of_8, 4, 4, EIGHT_8)
DEFINE_TILE(tile_2x4_of_8, 2, 4, EIGHT_8)
DEFINE_TILE(tile_1x8_of_8, 1, 8, EIGHT_8)
DEFINE_TILE(tile_8x2_of_4, 8, 2, EIGHT_4)
DEFINE_TILE(tile_4x4_of_4, 4, 4, EIGHT_4)
DEFINE_TILE(tile_2x4_of_4, 2, 4, EIGHT_4)
DEFINE_TILE(tile_1x8_of_4, 1, 8, EIGHT_4)

static const calm_int_tile tiles[2][CALM_INT_TILES] = {
    {{8, 2, tile_8x2_of_8}, {4, 4, tile_4x4_of_8}, {2, 4, tile_2x4_of_8}, {1, 8, tile_1x8_of_8}},
    {{8, 2, tile_8x2_of_4}, {4, 4, tile_4x4_of_4}, {2, 4, tile_2x4_of_4}, {1, 8, tile_1x8_of_4}}};

void calm_int_avx512(const calm_int_piece *piece)
{
    calm_int_tiles(piece, tiles[piece->weight->bits == 4], PARTS);
}

#else

void calm_int_avx512(const calm_int_piece *piece)
{
    calm_int_plain(piece);
}

#endif
