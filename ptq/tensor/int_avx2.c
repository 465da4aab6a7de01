/* Integer products with AVX2, and with VNNI if the CPU has it for 256-bit vectors. */
#include "ptq/tensor/int_kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define LANES 8

typedef __m256i whole;
typedef __m256 real;

#define load_bytes(from)     _mm256_loadu_si256((const __m256i *)(const void *)(from))
#define load_words(from)     load_bytes(from)
#define load_floats(from)    _mm256_loadu_ps(from)
#define store_floats(to, x) _mm256_storeu_ps(to, x)
#define spread(n)            _mm256_set1_epi32(n)
#define spread_float(x)      _mm256_set1_ps(x)
#define low(x)               _mm256_and_si256(x, _mm256_set1_epi8(15))
#define high(x)              low(_mm256_srli_epi16(x, 4))
#define subtract(a, b)       _mm256_sub_epi32(a, b)
#define multiply_words(a, b) _mm256_mullo_epi32(a, b)
#define to_real(x)           _mm256_cvtepi32_ps(x)
#define times(a, b)          _mm256_mul_ps(a, b)
#define plus(a, b)           _mm256_add_ps(a, b)

#include "ptq/tensor/int_tile.h"

/* ---- AVX2: two products of 16-bit integers per instruction ---- */

#define TARGET __attribute__((target("avx2")))

/* Bytes 0 and 2, and bytes 1 and 3, of each word: pairs of unsigned codes and of signed activations, whose sums of
 * products fit into 32 bits. _mm256_maddubs_epi16 would saturate at 32767: 2 * 255 * 128 exceeds it. */
#define even_codes(w) _mm256_and_si256(w, _mm256_set1_epi32(0x00ff00ff))
#define odd_codes(w)  _mm256_srli_epi16(w, 8)
#define even_rows(x)  _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8)
#define odd_rows(x)   _mm256_srai_epi16(x, 8)
#define dot(sum, w, x)                                                                                                 \
    _mm256_add_epi32(sum, _mm256_add_epi32(_mm256_madd_epi16(even_codes(w), even_rows(x)),                             \
                                           _mm256_madd_epi16(odd_codes(w), odd_rows(x))))
/* For codes below 16, the sum of two products is at most 2 * 15 * 128. */
#define dot_small(sum, w, x)                                                                                           \
    _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), _mm256_set1_epi16(1)))

DEFINE_TILE(tile_4x2_of_8, 4, 2, EIGHT_8)
DEFINE_TILE(tile_2x4_of_8, 2, 4, EIGHT_8)
DEFINE_TILE(tile_1x8_of_8, 1, 8, EIGHT_8)
DEFINE_TILE(tile_4x2_of_4, 4, 2, EIGHT_4)
DEFINE_TILE(tile_2x4_of_4, 2, 4, EIGHT_4)
DEFINE_TILE(tile_1x8_of_4, 1, 8, EIGHT_4)

void calm_int_avx2(const calm_int_piece *piece)
{
    static const calm_int_tile tiles[2][CALM_INT_TILES] = {
        {{4, 2, tile_4x2_of_8}, {2, 4, tile_2x4_of_8}, {1, 8, tile_1x8_of_8}},
        {{4, 2, tile_4x2_of_4}, {2, 4, tile_2x4_of_4}, {1, 8, tile_1x8_of_4}}};
    calm_int_tiles(piece, tiles[piece->weight->bits == 4], PARTS);
}

/* ---- with VNNI ---- */

#undef TARGET
#undef dot
#undef dot_small
#define TARGET         __attribute__((target("avx2,avxvnni")))
#define dot(sum, w, x) dot_in_place(sum, w, x)
#define dot_small      dot

/* Uses the instruction through inline assembly, for the reason given in int_avx512.c. */
TARGET __attribute__((always_inline)) static inline whole dot_in_place(whole sum, whole w, whole x)
{
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(w), "x"(x));
    return sum;
}

DEFINE_TILE(vnni_4x2_of_8, 4, 2, EIGHT_8)
DEFINE_TILE(vnni_2x4_of_8, 2, 4, EIGHT_8)
DEFINE_TILE(vnni_1x8_of_8, 1, 8, EIGHT_8)
DEFINE_TILE(vnni_4x2_of_4, 4, 2, EIGHT_4)
DEFINE_TILE(vnni_2x4_of_4, 2, 4, EIGHT_4)
DEFINE_TILE(vnni_1x8_of_4, 1, 8, EIGHT_4)

void calm_int_avx_vnni(const calm_int_piece *piece)
{
    static const calm_int_tile tiles[2][CALM_INT_TILES] = {
        {{4, 2, vnni_4x2_of_8}, {2, 4, vnni_2x4_of_8}, {1, 8, vnni_1x8_of_8}},
        {{4, 2, vnni_4x2_of_4}, {2, 4, vnni_2x4_of_4}, {1, 8, vnni_1x8_of_4}}};
    calm_int_tiles(piece, tiles[piece->weight->bits == 4], PARTS);
}

#else

void calm_int_avx2(const calm_int_piece *piece)
{
    calm_int_plain(piece);
}

void calm_int_avx_vnni(const calm_int_piece *piece)
{
    calm_int_plain(piece);
}

#endif
